#pragma once
// The problems that cuDNN and cuBLASLt compute. For the sizes and shapes of a problem, a library makes an op
// that can run. The headers of cuDNN and cuBLASLt are not visible here, so that the layers and their tests
// need neither: a fake (tests/fakes/fake_vendor_library.h) computes the same problems on the host.
//
// Feature maps are fp32, bf16 or fp16, dense, channels last; filters are KRSC with the channels of one group.
// Sums are fp32 for all types and rounded once to the result. TF32 is used only on request; for a
// convolution, the name of its engine requests it. All ops compute the same bits for the same operands.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/ops/cuda/engine_source.h"
#include "vdnn/address_range.h"
#include "vdnn/op_spec.h"

namespace vdnn::cuda {

// A product C = op(A) op(B) of row-major matrices, where op() transposes its matrix or does nothing: C rows x
// columns, op(A) rows x inner, op(B) inner x columns.
struct MatrixProduct {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  bool transposed_a = false;
  bool transposed_b = false;
  bool tf32 = false;  // fp32 factors may be rounded to TF32
  DataType factors = DataType::kF32;
  DataType result = DataType::kF32;  // the type of the factors, or fp32
  std::uint64_t most_workspace_bytes = 0;
};

// Pooling in two or three spatial dimensions.
struct PoolingProblem {
  PoolingSpec spec;
  Dims x;
  Dims y;
  Direction direction = Direction::kForward;
  DataType elements = DataType::kF32;
};

// Local response normalisation of fp32 maps. Narrow maps are not supported: cuDNN casts the factors of the
// formula to the type of the tensor (cudnn_ops.h), so they would lose most of their bits. Maps may have any
// number of spatial dimensions.
struct LrnProblem {
  LrnSpec spec;
  Dims x;
  Direction direction = Direction::kForward;
};

struct VendorOperands {
  std::span<const AddressRange> reads;
  AddressRange write;
  AddressRange workspace;  // has workspace_bytes() of the op
};

class VendorOp {
 public:
  VendorOp() = default;
  VendorOp(const VendorOp&) = delete;
  VendorOp& operator=(const VendorOp&) = delete;
  virtual ~VendorOp() = default;

  virtual std::uint64_t workspace_bytes() const = 0;
  // Submits the op to the stream (a cudaStream_t). Operands must be aligned to 16 bytes, the workspace to
  // 256, and none may overlap the write. Throws DeviceError with the library's name for the error, the call
  // and its numbers.
  virtual void run(const VendorOperands& operands, void* stream) const = 0;
};

// The library of one GPU. It must outlive its ops. Thread-safe. Several threads may run its ops at the same
// time, but not the same op. For an unsupported convolution the library throws NoEngine, for any other
// unsupported problem DeviceError.
class VendorLibrary {
 public:
  VendorLibrary() = default;
  VendorLibrary(const VendorLibrary&) = delete;
  VendorLibrary& operator=(const VendorLibrary&) = delete;
  virtual ~VendorLibrary() = default;

  // A convolution in two or three spatial dimensions, on an engine that an engine source listed for the
  // question. Forward reads X and W, the data gradient reads dY and W, and the filter gradient reads X and
  // dY. All operands have the question's type.
  virtual std::unique_ptr<VendorOp> convolution(const EngineQuestion& question,
                                                const std::string& engine) = 0;
  // The op reads A and B, and uses at most most_workspace_bytes.
  virtual std::unique_ptr<VendorOp> matrix_product(const MatrixProduct& product) = 0;
  // Forward reads X; backward reads X, Y and dY.
  virtual std::unique_ptr<VendorOp> pooling(const PoolingProblem& problem) = 0;
  virtual std::unique_ptr<VendorOp> lrn(const LrnProblem& problem) = 0;
};

// cuDNN and cuBLASLt on the calling thread's GPU, whose number is `ordinal`. Throws DeviceError if one of
// these libraries cannot be loaded, or if vdnn was built without it. Neither this call nor the destructor
// waits for work of the GPU, so other threads may capture streams in the meantime.
std::unique_ptr<VendorLibrary> make_vendor_library(int ordinal);

}  // namespace vdnn::cuda
