#pragma once
// Everything that cuDNN and cuBLASLt compute, as problems: numbers and shapes go in, an op that can be run
// comes out. Nothing of their headers shows, so that the layers and their tests need neither: a fake
// (tests/fakes/fake_vendor_library.h) computes the same problems on the host.
//
// Feature maps are fp32, bf16 or fp16, dense, channels last; filters KRSC with the channels of one group.
// Sums are fp32 whatever the type, and rounded once to what is written. TF32 is taken where it is asked for,
// by name of a convolution's engine, alone. All of them give the same bits for the same operands.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/ops/cuda/engine_source.h"
#include "vdnn/address_range.h"
#include "vdnn/op_spec.h"

namespace vdnn::cuda {

// C = op(A) op(B), matrices row by row: C of rows x columns, op(A) of rows x inner, op(B) of inner x columns.
struct MatrixProduct {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  bool transposed_a = false;
  bool transposed_b = false;
  bool tf32 = false;  // fp32 factors may be rounded to TF32
  DataType factors = DataType::kF32;
  DataType result = DataType::kF32;  // that of the factors, or fp32
  std::uint64_t most_workspace_bytes = 0;
};

// Two or three dimensions of space.
struct PoolingProblem {
  PoolingSpec spec;
  Dims x;
  Dims y;
  Direction direction = Direction::kForward;
  DataType elements = DataType::kF32;
};

// Of fp32 maps: cuDNN casts the factors of the formula to the type of the tensor (cudnn_ops.h), where narrow
// types would lose most of their bits. One or more dimensions of space, which do not matter.
struct LrnProblem {
  LrnSpec spec;
  Dims x;
  Direction direction = Direction::kForward;
};

struct VendorOperands {
  std::span<const AddressRange> reads;
  AddressRange write;
  AddressRange workspace;  // of workspace_bytes()
};

class VendorOp {
 public:
  VendorOp() = default;
  VendorOp(const VendorOp&) = delete;
  VendorOp& operator=(const VendorOp&) = delete;
  virtual ~VendorOp() = default;

  virtual std::uint64_t workspace_bytes() const = 0;
  // Submits it to the stream (a cudaStream_t). Operands are aligned to 16 bytes, the workspace to 256, and
  // none overlaps the write. Throws DeviceError with the library's name for the error, the call and its
  // numbers.
  virtual void run(const VendorOperands& operands, void* stream) const = 0;
};

// Of one GPU; ops outlive neither it nor the library. Thread-safe, and so are its ops as long as none is run
// by two threads at once. What it cannot compute is a DeviceError, of convolutions NoEngine.
class VendorLibrary {
 public:
  VendorLibrary() = default;
  VendorLibrary(const VendorLibrary&) = delete;
  VendorLibrary& operator=(const VendorLibrary&) = delete;
  virtual ~VendorLibrary() = default;

  // By an engine that an engine source named for the question; two or three dimensions of space. Forward
  // reads X and W, the data gradient dY and W, the filter gradient X and dY. All, and what is written, is of
  // the question's type.
  virtual std::unique_ptr<VendorOp> convolution(const EngineQuestion& question,
                                                const std::string& engine) = 0;
  // Reads A and B. Wants most_workspace_bytes at most.
  virtual std::unique_ptr<VendorOp> matrix_product(const MatrixProduct& product) = 0;
  // Both read X; backward X, Y and dY.
  virtual std::unique_ptr<VendorOp> pooling(const PoolingProblem& problem) = 0;
  virtual std::unique_ptr<VendorOp> lrn(const LrnProblem& problem) = 0;
};

// cuDNN and cuBLASLt on the calling thread's GPU, which is number `ordinal`. Throws DeviceError where one of
// them cannot be loaded or was not there to build with. Waits for no work of the GPU, nor does its end, so
// that others may capture meanwhile.
std::unique_ptr<VendorLibrary> make_vendor_library(int ordinal);

}  // namespace vdnn::cuda
