// Convolutions through cuDNN's graphs (convolution_op.h), matrix products through cuBLASLt. Pooling and local
// response normalisation use cuDNN's descriptors, since cuDNN's graphs support these layers only in part.

#include <cublasLt.h>
#include <cudnn.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "src/ops/cuda/channels_last.h"
#include "src/ops/cuda/convolution_op.h"
#include "src/ops/cuda/gpu_shortage.h"
#include "src/ops/cuda/kept_handles.h"
#include "src/ops/cuda/vendor_library.h"
#include "streams/cuda/loaded_library.h"

namespace vdnn::cuda {

using vdnn::to_string;  // of a shape

namespace {

constexpr float kOne = 1;
constexpr float kZero = 0;

// Looks up a function by its name in a library.
// NOLINTNEXTLINE(bugprone-macro-parentheses): the macro makes a declaration
#define VDNN_FUNCTION(name) decltype(&::name) name = library.find<decltype(&::name)>(#name)

struct Cudnn {
  LoadedLibrary library{"libcudnn.so." + std::to_string(CUDNN_MAJOR)};
  VDNN_FUNCTION(cudnnGetErrorString);
  VDNN_FUNCTION(cudnnCreate);
  VDNN_FUNCTION(cudnnSetStream);
  VDNN_FUNCTION(cudnnCreateTensorDescriptor);
  VDNN_FUNCTION(cudnnDestroyTensorDescriptor);
  VDNN_FUNCTION(cudnnSetTensorNdDescriptor);
  VDNN_FUNCTION(cudnnCreatePoolingDescriptor);
  VDNN_FUNCTION(cudnnDestroyPoolingDescriptor);
  VDNN_FUNCTION(cudnnSetPoolingNdDescriptor);
  VDNN_FUNCTION(cudnnPoolingForward);
  VDNN_FUNCTION(cudnnPoolingBackward);
  VDNN_FUNCTION(cudnnCreateLRNDescriptor);
  VDNN_FUNCTION(cudnnDestroyLRNDescriptor);
  VDNN_FUNCTION(cudnnSetLRNDescriptor);
  VDNN_FUNCTION(cudnnLRNCrossChannelForward);
  VDNN_FUNCTION(cudnnLRNCrossChannelBackward);

  void require(cudnnStatus_t status, const std::string& call) const {
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
      throw_out_of_memory(call + ": " + cudnnGetErrorString(status));
    }
    if (status != CUDNN_STATUS_SUCCESS) {
      throw DeviceError(call + ": " + cudnnGetErrorString(status));
    }
  }
};

struct CublasLt {
  LoadedLibrary library{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)};
  VDNN_FUNCTION(cublasLtGetStatusName);
  VDNN_FUNCTION(cublasLtCreate);
  VDNN_FUNCTION(cublasLtMatmul);
  VDNN_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  VDNN_FUNCTION(cublasLtMatmulDescCreate);
  VDNN_FUNCTION(cublasLtMatmulDescDestroy);
  VDNN_FUNCTION(cublasLtMatmulDescSetAttribute);
  VDNN_FUNCTION(cublasLtMatmulPreferenceCreate);
  VDNN_FUNCTION(cublasLtMatmulPreferenceDestroy);
  VDNN_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  VDNN_FUNCTION(cublasLtMatrixLayoutCreate);
  VDNN_FUNCTION(cublasLtMatrixLayoutDestroy);

  void require(cublasStatus_t status, const std::string& call) const {
    if (status == CUBLAS_STATUS_ALLOC_FAILED) {
      throw_out_of_memory(call + ": " + cublasLtGetStatusName(status));
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw DeviceError(call + ": " + cublasLtGetStatusName(status));
    }
  }
};

#undef VDNN_FUNCTION

// An object that a function of its library destroys.
template <class Pointer, class Status>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Status (*)(Pointer)>;

template <class Pointer, class Status, class Library, class... Arguments>
Owned<Pointer, Status> make_owned(const Library& library, const char* call,
                                  Status (*create)(Pointer*, Arguments...), Status (*destroy)(Pointer),
                                  std::type_identity_t<Arguments>... arguments) {
  Pointer made = nullptr;
  library.require(create(&made, arguments...), call);
  return {made, destroy};
}

// The vendors' libraries count in 32 bits.
int to_int(std::int64_t value) {
  if (value < 0 || value > std::numeric_limits<int>::max()) {
    throw InvalidArgument(std::to_string(value) +
                          " does not fit into the 32 bits in which cuDNN and cuBLASLt count");
  }
  return static_cast<int>(value);
}

std::vector<int> to_ints(const Dims& dims) {
  std::vector<int> ints;
  for (const std::int64_t extent : dims) {
    ints.push_back(to_int(extent));
  }
  return ints;
}

cudnnDataType_t cudnn_type(DataType elements) {
  switch (elements) {
    case DataType::kF32:
      return CUDNN_DATA_FLOAT;
    case DataType::kF16:
      return CUDNN_DATA_HALF;
    case DataType::kBf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      throw InvalidArgument(std::string("cuda: no op computes maps of ") + vdnn::to_string(elements) +
                            " through cuDNN");
  }
}

cudaDataType_t cublas_type(DataType elements) {
  switch (elements) {
    case DataType::kF32:
      return CUDA_R_32F;
    case DataType::kF16:
      return CUDA_R_16F;
    case DataType::kBf16:
      return CUDA_R_16BF;
    default:
      throw InvalidArgument(std::string("cuda: no op computes products of ") + vdnn::to_string(elements) +
                            " through cuBLASLt");
  }
}

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnStatus_t>;
using PoolingDescriptor = Owned<cudnnPoolingDescriptor_t, cudnnStatus_t>;
using LrnDescriptor = Owned<cudnnLRNDescriptor_t, cudnnStatus_t>;

TensorDescriptor channels_last_tensor(const Cudnn& cudnn, const TensorType& type) {
  const Dims& dims = type.dims;
  TensorDescriptor tensor = make_owned(cudnn, "cudnnCreateTensorDescriptor",
                                       cudnn.cudnnCreateTensorDescriptor, cudnn.cudnnDestroyTensorDescriptor);
  cudnn.require(
      cudnn.cudnnSetTensorNdDescriptor(tensor.get(), cudnn_type(type.data_type), to_int(dims.size()),
                                       to_ints(dims).data(), to_ints(channels_last_strides(dims)).data()),
      "cudnnSetTensorNdDescriptor " + to_string(dims));
  return tensor;
}

// A handle of the calling thread's GPU.
template <class Handle, class Status, class Library>
void* make_handle(const Library& library, const char* call, Status (*create)(Handle*)) {
  Handle made = nullptr;
  library.require(create(&made), call);
  return made;
}

// State that the ops of one library share.
struct CudnnContext {
  CudnnContext(const Cudnn& functions, int ordinal)
      : cudnn(functions), kept(cudnn_handles(), ordinal, [&functions] {
          return make_handle(functions, "cudnnCreate", functions.cudnnCreate);
        }) {}

  cudnnHandle_t handle() const { return static_cast<cudnnHandle_t>(kept.get()); }

  const Cudnn& cudnn;
  const KeptHandle kept;
  // Guards the handle, which has one stream at a time and is used by one thread at a time.
  mutable std::mutex mutex;
};

// A layer with one call forward and one backward between X and Y. Scaling factors are floats for all types of
// maps that these layers have.
template <class Descriptor>
class MapOp : public VendorOp {
 public:
  MapOp(const CudnnContext& context, Direction direction, const TensorType& x, const TensorType& y,
        Descriptor descriptor)
      : context_(context),
        forward_(direction == Direction::kForward),
        what_(to_string(x.dims) + " in " + vdnn::to_string(x.data_type)),
        x_(channels_last_tensor(context.cudnn, x)),
        y_(channels_last_tensor(context.cudnn, y)),
        descriptor_(std::move(descriptor)) {}

  std::uint64_t workspace_bytes() const override { return 0; }

  void run(const VendorOperands& operands, void* stream) const override {
    const std::lock_guard lock(context_.mutex);
    cudnn().require(cudnn().cudnnSetStream(handle(), static_cast<cudaStream_t>(stream)), "cudnnSetStream");
    if (forward_) {
      forward(pointer_to<const void>(operands.reads[0].begin), pointer_to<void>(operands.write.begin));
    } else {
      backward(pointer_to<const void>(operands.reads[0].begin),
               pointer_to<const void>(operands.reads[1].begin),
               pointer_to<const void>(operands.reads[2].begin), pointer_to<void>(operands.write.begin));
    }
  }

 protected:
  const Cudnn& cudnn() const { return context_.cudnn; }
  cudnnHandle_t handle() const { return context_.handle(); }
  cudnnTensorDescriptor_t x() const { return x_.get(); }
  cudnnTensorDescriptor_t y() const { return y_.get(); }
  typename Descriptor::pointer descriptor() const { return descriptor_.get(); }
  void require(cudnnStatus_t status, const char* call) const {
    cudnn().require(status, std::string(call) + " over " + what_);
  }

 private:
  virtual void forward(const void* x, void* y) const = 0;
  virtual void backward(const void* x, const void* y, const void* dy, void* dx) const = 0;

  const CudnnContext& context_;
  bool forward_;
  std::string what_;
  TensorDescriptor x_;
  TensorDescriptor y_;
  Descriptor descriptor_;
};

PoolingDescriptor pooling_descriptor(const Cudnn& cudnn, const PoolingSpec& spec) {
  PoolingDescriptor made =
      make_owned(cudnn, "cudnnCreatePoolingDescriptor", cudnn.cudnnCreatePoolingDescriptor,
                 cudnn.cudnnDestroyPoolingDescriptor);
  const cudnnPoolingMode_t mode = spec.mode == PoolingMode::kMax
                                      ? CUDNN_POOLING_MAX_DETERMINISTIC
                                      : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
  cudnn.require(cudnn.cudnnSetPoolingNdDescriptor(made.get(), mode, CUDNN_PROPAGATE_NAN,
                                                  to_int(spec.kernel.size()), to_ints(spec.kernel).data(),
                                                  to_ints(spec.padding).data(), to_ints(spec.stride).data()),
                "cudnnSetPoolingNdDescriptor " + to_string(spec.kernel));
  return made;
}

class PoolingOp final : public MapOp<PoolingDescriptor> {
 public:
  PoolingOp(const CudnnContext& context, const PoolingProblem& problem)
      : MapOp(context, problem.direction, {.data_type = problem.elements, .dims = problem.x},
              {.data_type = problem.elements, .dims = problem.y},
              pooling_descriptor(context.cudnn, problem.spec)) {}

 private:
  void forward(const void* x_data, void* y_data) const override {
    require(cudnn().cudnnPoolingForward(handle(), descriptor(), &kOne, x(), x_data, &kZero, y(), y_data),
            "cudnnPoolingForward");
  }
  void backward(const void* x_data, const void* y_data, const void* dy, void* dx) const override {
    require(cudnn().cudnnPoolingBackward(handle(), descriptor(), &kOne, y(), y_data, y(), dy, x(), x_data,
                                         &kZero, x(), dx),
            "cudnnPoolingBackward");
  }
};

// cuDNN requires a double of at least `least`, 1e-5 or 0.01, and rounds it to a float. A `value` of 1e-5F or
// 0.01F is smaller than `least` when it is converted to a double.
double at_least(double least, float value) {
  return std::max(least, static_cast<double>(value));
}

LrnDescriptor lrn_descriptor(const Cudnn& cudnn, const LrnSpec& spec) {
  LrnDescriptor made = make_owned(cudnn, "cudnnCreateLRNDescriptor", cudnn.cudnnCreateLRNDescriptor,
                                  cudnn.cudnnDestroyLRNDescriptor);
  cudnn.require(cudnn.cudnnSetLRNDescriptor(
                    made.get(), static_cast<unsigned>(spec.size), static_cast<double>(spec.alpha),
                    at_least(CUDNN_LRN_MIN_BETA, spec.beta), at_least(CUDNN_LRN_MIN_K, spec.k)),
                "cudnnSetLRNDescriptor of size " + std::to_string(spec.size));
  return made;
}

// cuDNN supports channels last only for planes. The operation does not depend on how places are arranged, so
// all places become one row.
TensorType as_rows(const Dims& dims) {
  Dims rows{dims[0], dims[1], 1, 1};
  for (std::size_t i = 2; i < dims.size(); ++i) {
    rows[3] *= dims[i];
  }
  return {.dims = std::move(rows)};
}

class LrnOp final : public MapOp<LrnDescriptor> {
 public:
  LrnOp(const CudnnContext& context, const LrnProblem& problem)
      : MapOp(context, problem.direction, as_rows(problem.x), as_rows(problem.x),
              lrn_descriptor(context.cudnn, problem.spec)) {}

 private:
  static constexpr cudnnLRNMode_t kMode = CUDNN_LRN_CROSS_CHANNEL_DIM1;

  void forward(const void* x_data, void* y_data) const override {
    require(cudnn().cudnnLRNCrossChannelForward(handle(), descriptor(), kMode, &kOne, x(), x_data, &kZero,
                                                y(), y_data),
            "cudnnLRNCrossChannelForward");
  }
  void backward(const void* x_data, const void* y_data, const void* dy, void* dx) const override {
    require(cudnn().cudnnLRNCrossChannelBackward(handle(), descriptor(), kMode, &kOne, y(), y_data, y(), dy,
                                                 x(), x_data, &kZero, x(), dx),
            "cudnnLRNCrossChannelBackward");
  }
};

using LtOperation = Owned<cublasLtMatmulDesc_t, cublasStatus_t>;
using LtLayout = Owned<cublasLtMatrixLayout_t, cublasStatus_t>;
using LtPreference = Owned<cublasLtMatmulPreference_t, cublasStatus_t>;

struct LtContext {
  LtContext(const CublasLt& functions, int ordinal)
      : lt(functions), kept(cublaslt_handles(), ordinal, [&functions] {
          return make_handle(functions, "cublasLtCreate", functions.cublasLtCreate);
        }) {}

  cublasLtHandle_t handle() const { return static_cast<cublasLtHandle_t>(kept.get()); }

  const CublasLt& lt;
  const KeptHandle kept;
};

std::string text_of(const MatrixProduct& p) {
  return std::to_string(p.rows) + "x" + std::to_string(p.inner) + " by " + std::to_string(p.inner) + "x" +
         std::to_string(p.columns) + " in " + vdnn::to_string(p.factors);
}

// cuBLASLt is column-major and reads a row-major matrix as its transpose. So this op computes the transposed
// product, B' A' = C'.
class MatrixProductOp final : public VendorOp {
 public:
  MatrixProductOp(const LtContext& context, const MatrixProduct& product)
      : context_(context),
        what_("cublasLtMatmul " + text_of(product)),
        operation_(operation(product)),
        a_(layout(product.factors, product.transposed_a, product.rows, product.inner)),
        b_(layout(product.factors, product.transposed_b, product.inner, product.columns)),
        c_(layout(product.result, false, product.rows, product.columns)),
        chosen_(choose(product.most_workspace_bytes)) {}

  std::uint64_t workspace_bytes() const override { return chosen_.workspaceSize; }

  void run(const VendorOperands& operands, void* stream) const override {
    const auto* const a = pointer_to<const void>(operands.reads[0].begin);
    const auto* const b = pointer_to<const void>(operands.reads[1].begin);
    auto* const c = pointer_to<void>(operands.write.begin);
    lt().require(
        lt().cublasLtMatmul(context_.handle(), operation_.get(), &kOne, b, b_.get(), a, a_.get(), &kZero, c,
                            c_.get(), c, c_.get(), &chosen_.algo, pointer_to<void>(operands.workspace.begin),
                            operands.workspace.bytes, static_cast<cudaStream_t>(stream)),
        what_);
  }

 private:
  const CublasLt& lt() const { return context_.lt; }

  LtOperation operation(const MatrixProduct& product) const {
    LtOperation made = make_owned(
        lt(), "cublasLtMatmulDescCreate", lt().cublasLtMatmulDescCreate, lt().cublasLtMatmulDescDestroy,
        product.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
      const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      lt().require(lt().cublasLtMatmulDescSetAttribute(made.get(), attribute, &value, sizeof value), what_);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, product.transposed_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, product.transposed_a);
    return made;
  }

  // The descriptor of a row-major matrix of rows x columns, or of its transpose.
  LtLayout layout(DataType elements, bool transposed, std::int64_t rows, std::int64_t columns) const {
    const std::int64_t length = transposed ? rows : columns;
    const std::int64_t count = transposed ? columns : rows;
    return make_owned(lt(), "cublasLtMatrixLayoutCreate", lt().cublasLtMatrixLayoutCreate,
                      lt().cublasLtMatrixLayoutDestroy, cublas_type(elements),
                      static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(count), length);
  }

  // The heuristic's first choice within the workspace. The choice depends only on sizes, GPU and version of
  // cuBLASLt. Partial sums in the workspace are fp32, and cuBLASLt adds them in a fixed order.
  cublasLtMatmulHeuristicResult_t choose(std::uint64_t most_workspace_bytes) const {
    const LtPreference preference =
        make_owned(lt(), "cublasLtMatmulPreferenceCreate", lt().cublasLtMatmulPreferenceCreate,
                   lt().cublasLtMatmulPreferenceDestroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      lt().require(
          lt().cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
          what_);
    };
    constexpr std::uint32_t kOperandAlignment = 16;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace_bytes);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(operand, kOperandAlignment);
    }
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    lt().require(
        lt().cublasLtMatmulAlgoGetHeuristic(context_.handle(), operation_.get(), b_.get(), a_.get(), c_.get(),
                                            c_.get(), preference.get(), 1, &result, &found),
        what_);
    lt().require(found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : result.state, what_);
    return result;
  }

  const LtContext& context_;
  std::string what_;
  LtOperation operation_;
  LtLayout a_;
  LtLayout b_;
  LtLayout c_;
  cublasLtMatmulHeuristicResult_t chosen_;
};

class CudnnLibrary final : public VendorLibrary {
 public:
  explicit CudnnLibrary(int ordinal) : cudnn_(cudnn_functions_, ordinal), lt_(lt_functions_, ordinal) {}

  std::unique_ptr<VendorOp> convolution(const EngineQuestion& question, const std::string& engine) override {
    return make_convolution_op({.handle = cudnn_.handle(), .mutex = &cudnn_.mutex}, question, engine);
  }
  std::unique_ptr<VendorOp> matrix_product(const MatrixProduct& product) override {
    return std::make_unique<MatrixProductOp>(lt_, product);
  }
  std::unique_ptr<VendorOp> pooling(const PoolingProblem& problem) override {
    return std::make_unique<PoolingOp>(cudnn_, problem);
  }
  std::unique_ptr<VendorOp> lrn(const LrnProblem& problem) override {
    return std::make_unique<LrnOp>(cudnn_, problem);
  }

 private:
  // Both libraries are loaded before the first call to the GPU.
  Cudnn cudnn_functions_;
  CublasLt lt_functions_;
  CudnnContext cudnn_;
  LtContext lt_;
};

}  // namespace

std::unique_ptr<VendorLibrary> make_vendor_library(int ordinal) {
  return std::make_unique<CudnnLibrary>(ordinal);
}

}  // namespace vdnn::cuda
