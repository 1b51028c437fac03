#pragma once
// cuDNN and cuBLASLt on the host: the same problems in the same types, computed with the references of
// tests/ops. A problem with types that the libraries do not support is refused when it is created, and so is
// an engine of another type. Each call is recorded and computed in its turn. A call is refused if an operand
// does not have the size of its shape and type, is misaligned or overlaps the write. It is also refused if
// the workspace does not have the requested size. The call leaves its workspace full of NaN.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/vendor_library.h"
#include "tests/fakes/host_launch.h"

namespace vdnn::testing {

struct VendorCall {
  std::string name;
  std::vector<AddressRange> reads;
  AddressRange write;
  AddressRange workspace;
  void* stream = nullptr;
};

// Two engines for every convolution, "large" and "small"; only "large" needs workspace. The engines of narrow
// types have other names.
std::shared_ptr<const cuda::EngineSource> make_fake_engines();
std::string fake_engine_name(const std::string& name, DataType elements);

class FakeVendorLibrary : public cuda::VendorLibrary {
 public:
  using Record = std::function<void(const VendorCall&)>;

  // Uses the fake engines, and keeps the calls.
  explicit FakeVendorLibrary(HostLaunch launch = run_at_once);
  // Passes each call to `record`, and computes nothing.
  FakeVendorLibrary(std::shared_ptr<const cuda::EngineSource> engines, Record record)
      : engines_(std::move(engines)), record_(std::move(record)), launch_(run_never) {}

  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string& engine) override;
  std::unique_ptr<cuda::VendorOp> matrix_product(const cuda::MatrixProduct& product) override;
  std::unique_ptr<cuda::VendorOp> pooling(const cuda::PoolingProblem& problem) override;
  std::unique_ptr<cuda::VendorOp> lrn(const cuda::LrnProblem& problem) override;

  const std::vector<VendorCall>& calls() const { return *calls_; }

 private:
  std::shared_ptr<const cuda::EngineSource> engines_;
  std::shared_ptr<std::vector<VendorCall>> calls_ = std::make_shared<std::vector<VendorCall>>();
  Record record_;
  HostLaunch launch_;
};

}  // namespace vdnn::testing
