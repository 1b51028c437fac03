// Checks the calls of cudnn_library.cpp to cuDNN and cuBLASLt against the libraries' rules. Handles and
// launches are stand-ins on a FakeCuda. Descriptors are the libraries' own and check their attributes without
// a GPU. (Convolutions go through cudnn-frontend, whose calls have no stand-ins.)
//
// The stand-ins are functions of this program. cudnn_library.cpp opens the libraries globally by name, so the
// loader finds the program's symbols first.

#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "src/ops/cuda/vendor_library.h"
#include "tests/fakes/fake_cuda.h"
#include "vdnn/error.h"

using vdnn::CudaStatus;
using vdnn::CudaStream;
using vdnn::FakeCuda;

namespace {

// The state of the stand-ins, for one test at a time.
struct Vendor {
  std::shared_ptr<FakeCuda> cuda;
  std::vector<std::string> misuses;
  int handles_made = 0;
  cudnnHandle_t last_used = nullptr;
  std::uint64_t product_workspace = 0;  // of the last algorithm
  std::uint32_t product_alignment = 1;
  cudnnDataType_t map_type = CUDNN_DATA_FLOAT;                                      // of the last call
  std::pair<cudaDataType_t, cudaDataType_t> product_types{CUDA_R_32F, CUDA_R_32F};  // factors, result

  int gpu_of_thread() const { return cuda->gpu_of_thread(); }
  void require(bool kept, const std::string& rule) {
    if (!kept) {
      misuses.push_back(rule);
    }
  }
};

Vendor* vendor = nullptr;

// A handle of either library is "tied to the current CUDA device". That device must be current whenever the
// handle is used or destroyed.
struct Handle {
  int ordinal = vendor->gpu_of_thread();
  CudaStream stream = nullptr;

  Handle() { ++vendor->handles_made; }
  void check_gpu(const std::string& call) const {
    vendor->require(vendor->gpu_of_thread() == ordinal, call + ": another GPU than the handle's is current");
  }
  // cudnnDestroy(), cublasLtDestroy(): "will implicitly call cudaDeviceSynchronize".
  void destroy(const std::string& call) const {
    check_gpu(call);
    vendor->cuda->device_synchronize();
  }
};

Handle& handle_of(cudnnHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

// The library's own function of this name.
template <class Function>
Function* own(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

cudnnDataType_t type_of(const cudnnTensorDescriptor_t tensor) {
  constexpr int kMost = CUDNN_DIM_MAX;
  cudnnDataType_t type{};
  int rank = 0;
  std::array<int, kMost> dims{};
  std::array<int, kMost> strides{};
  static auto* const describe = own<decltype(cudnnGetTensorNdDescriptor)>("cudnnGetTensorNdDescriptor");
  describe(tensor, kMost, &type, &rank, dims.data(), strides.data());
  return type;
}

// Scaling factors are floats for these types (cuDNN's developer guide, "Scaling Parameters").
void check_maps(const std::string& call, std::initializer_list<cudnnTensorDescriptor_t> maps) {
  vendor->map_type = type_of(*maps.begin());
  for (const cudnnTensorDescriptor_t map : maps) {
    vendor->require(type_of(map) == vendor->map_type, call + ": maps of several types");
  }
  vendor->require(vendor->map_type == CUDNN_DATA_FLOAT || vendor->map_type == CUDNN_DATA_HALF ||
                      vendor->map_type == CUDNN_DATA_BFLOAT16,
                  call + ": maps whose scaling factors are no floats");
}

cudaDataType_t type_of(cublasLtMatrixLayout_t matrix) {
  static auto* const get =
      own<decltype(cublasLtMatrixLayoutGetAttribute)>("cublasLtMatrixLayoutGetAttribute");
  std::uint32_t type = 0;
  std::size_t written = 0;
  get(matrix, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type, &written);
  return static_cast<cudaDataType_t>(type);
}

std::int32_t attribute_of(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute) {
  static auto* const get = own<decltype(cublasLtMatmulDescGetAttribute)>("cublasLtMatmulDescGetAttribute");
  std::int32_t value = -1;
  std::size_t written = 0;
  get(operation, attribute, &value, sizeof value, &written);
  return value;
}

// Accepts the combinations of types that cublasLtMatmul()'s table lists for sums in fp32.
void check_product_types(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  const cudaDataType_t factors = type_of(a);
  const std::int32_t sums = attribute_of(operation, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  vendor->product_types = {factors, type_of(d)};
  vendor->require(factors == type_of(b), "cublasLtMatmul: factors of two types");
  vendor->require(type_of(c) == type_of(d), "cublasLtMatmul: C and D of two types");
  vendor->require(type_of(d) == CUDA_R_32F || type_of(d) == factors,
                  "cublasLtMatmul: no such type of result");
  vendor->require(
      sums == CUBLAS_COMPUTE_32F || (sums == CUBLAS_COMPUTE_32F_FAST_TF32 && factors == CUDA_R_32F),
      "cublasLtMatmul: these factors are not summed so");
  vendor->require(attribute_of(operation, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_32F,
                  "cublasLtMatmul: the scalars are floats");
}

// Launches an empty kernel, since the operands have no memory.
cudnnStatus_t launch(cudnnHandle_t handle, const std::string& call) {
  vendor->last_used = handle;
  handle_of(handle).check_gpu(call);
  const CudaStatus launched = FakeCuda::launch(handle_of(handle).stream, [] {});
  return launched == CudaStatus::kSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

extern "C" {

void* dlopen(const char* name, int mode) noexcept {
  using Open = void*(const char*, int);
  static auto* const loader = reinterpret_cast<Open*>(dlsym(RTLD_NEXT, "dlopen"));
  const std::string_view text = name == nullptr ? "" : name;
  if (text.starts_with("libcudnn.so") || text.starts_with("libcublasLt.so")) {
    return loader(name, RTLD_NOW | RTLD_GLOBAL) == nullptr ? nullptr : loader(nullptr, RTLD_NOW);
  }
  return loader(name, mode);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const std::unique_ptr<Handle> mine(&handle_of(handle));
  mine->destroy("cudnnDestroy");
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle_of(handle).check_gpu("cudnnSetStream");
  handle_of(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling, const void*,
                                  const cudnnTensorDescriptor_t x, const void*, const void*,
                                  const cudnnTensorDescriptor_t y, void*) {
  constexpr int kMost = CUDNN_DIM_MAX;
  cudnnDataType_t type{};
  int rank = 0;
  std::array<int, kMost> dims{};
  std::array<int, kMost> strides{};
  static auto* const describe = own<decltype(cudnnGetTensorNdDescriptor)>("cudnnGetTensorNdDescriptor");
  static auto* const size_of_result =
      own<decltype(cudnnGetPoolingNdForwardOutputDim)>("cudnnGetPoolingNdForwardOutputDim");
  describe(y, kMost, &type, &rank, dims.data(), strides.data());
  std::array<int, kMost> wanted{};
  const bool known = size_of_result(pooling, x, rank, wanted.data()) == CUDNN_STATUS_SUCCESS;
  vendor->require(known && wanted == dims, "cudnnPoolingForward: y is not of the size that x has for it");
  check_maps("cudnnPoolingForward", {x, y});
  return launch(handle, "cudnnPoolingForward");
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t, const void*,
                                   const cudnnTensorDescriptor_t y, const void*,
                                   const cudnnTensorDescriptor_t dy, const void*,
                                   const cudnnTensorDescriptor_t x, const void*, const void*,
                                   const cudnnTensorDescriptor_t dx, void*) {
  check_maps("cudnnPoolingBackward", {x, y, dy, dx});
  return launch(handle, "cudnnPoolingBackward");
}
cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t, cudnnLRNMode_t,
                                          const void*, const cudnnTensorDescriptor_t x, const void*,
                                          const void*, const cudnnTensorDescriptor_t y, void*) {
  check_maps("cudnnLRNCrossChannelForward", {x, y});
  vendor->require(vendor->map_type == CUDNN_DATA_FLOAT,
                  "cudnnLRNCrossChannelForward: its constants are rounded to the type of the maps");
  return launch(handle, "cudnnLRNCrossChannelForward");
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::unique_ptr<Handle> mine(reinterpret_cast<Handle*>(handle));
  mine->destroy("cublasLtDestroy");
  return CUBLAS_STATUS_SUCCESS;
}

// Returns an algorithm that needs the whole permitted workspace and relies on the promised alignment.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  static auto* const get =
      own<decltype(cublasLtMatmulPreferenceGetAttribute)>("cublasLtMatmulPreferenceGetAttribute");
  reinterpret_cast<Handle*>(handle)->check_gpu("cublasLtMatmulAlgoGetHeuristic");
  vendor->require(wanted > 0, "cublasLtMatmulAlgoGetHeuristic: no result is asked for");
  std::size_t written = 0;
  get(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &vendor->product_workspace,
      sizeof vendor->product_workspace, &written);
  std::uint32_t alignment = 0;
  get(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment, &written);
  vendor->product_alignment = alignment;
  *results = {};
  results->workspaceSize = vendor->product_workspace;
  results->state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  constexpr std::uintptr_t kWorkspaceAlignment = 256;
  const auto is_aligned = [](const void* address, std::uintptr_t alignment) {
    return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
  };
  reinterpret_cast<Handle*>(handle)->check_gpu("cublasLtMatmul");
  check_product_types(operation, a_layout, b_layout, c_layout, d_layout);
  vendor->require(alpha != nullptr && beta != nullptr, "cublasLtMatmul: no scalars");
  vendor->require(workspace_bytes >= vendor->product_workspace, "cublasLtMatmul: too little workspace");
  vendor->require(is_aligned(workspace, kWorkspaceAlignment), "cublasLtMatmul: misaligned workspace");
  for (const void* const operand : {a, b, c}) {
    vendor->require(is_aligned(operand, vendor->product_alignment), "cublasLtMatmul: misaligned operand");
  }
  vendor->require(c != d || c_layout == d_layout, "cublasLtMatmul: in place in another layout");
  return FakeCuda::launch(stream, [] {}) == CudaStatus::kSuccess ? CUBLAS_STATUS_SUCCESS
                                                                 : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

namespace vdnn::cuda {
namespace {

using ::testing::IsEmpty;

AddressRange floats_at(std::uint64_t begin, unsigned count) {
  return {.begin = begin, .bytes = count * sizeof(float)};
}

class VendorCalls : public ::testing::Test {
 protected:
  VendorCalls() { vendor = &vendor_; }
  ~VendorCalls() override {
    EXPECT_THAT(vendor_.misuses, IsEmpty());
    EXPECT_THAT(cuda().misuses(), IsEmpty());
    vendor = nullptr;
  }
  VendorCalls(const VendorCalls&) = delete;
  VendorCalls& operator=(const VendorCalls&) = delete;

  FakeCuda& cuda() { return *vendor_.cuda; }
  int handles_made() const { return vendor_.handles_made; }
  cudnnHandle_t last_used() const { return vendor_.last_used; }
  cudnnDataType_t map_type() const { return vendor_.map_type; }
  const std::pair<cudaDataType_t, cudaDataType_t>& product_types() const { return vendor_.product_types; }
  std::unique_ptr<VendorLibrary> make_library(int gpu) {
    cuda().set_device(gpu);
    return make_vendor_library(gpu);
  }
  // Runs one pooling on a stream of the GPU.
  void pool(VendorLibrary& library, int gpu) {
    cuda().set_device(gpu);
    CudaStream stream = nullptr;
    ASSERT_EQ(cuda().stream_create(stream), CudaStatus::kSuccess);
    const PoolingSpec spec{.mode = PoolingMode::kMax, .kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 0}};
    const auto op = library.pooling({.spec = spec, .x = {2, 3, 9, 8}, .y = {2, 3, 5, 4}});
    const std::array reads{floats_at(256, 2 * 3 * 9 * 8)};
    op->run({.reads = reads, .write = floats_at(4096, 2 * 3 * 5 * 4), .workspace = {}}, stream);
    EXPECT_EQ(cuda().stream_synchronize(stream), CudaStatus::kSuccess);
    EXPECT_EQ(cuda().stream_destroy(stream), CudaStatus::kSuccess);
  }

 private:
  Vendor vendor_{.cuda = std::make_shared<FakeCuda>(FakeCudaOptions{.gpus = 2}), .misuses = {}};
};

// Destroying a handle waits for the whole GPU, which no thread may do during a capture. Regression: the
// library destroyed its handles and invalidated the capture.
TEST_F(VendorCalls, ALibraryEndsWhileAnotherThreadCaptures) {
  std::unique_ptr<VendorLibrary> library = make_library(0);
  CudaStream stream = nullptr;
  CudaGraph graph = nullptr;
  ASSERT_EQ(cuda().stream_create(stream), CudaStatus::kSuccess);
  ASSERT_EQ(cuda().stream_begin_capture(stream), CudaStatus::kSuccess);
  std::thread([&] {
    cuda().set_device(0);
    library.reset();
  }).join();
  EXPECT_EQ(cuda().stream_end_capture(graph, stream), CudaStatus::kSuccess);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cuda().graph_destroy(graph), CudaStatus::kSuccess);
  EXPECT_EQ(cuda().stream_destroy(stream), CudaStatus::kSuccess);
}

TEST_F(VendorCalls, HandlesAreUsedOnTheirOwnGpu) {
  for (const int gpu : {0, 1}) {
    pool(*make_library(gpu), gpu);
  }
  const int made = handles_made();
  for (const int gpu : {0, 1}) {
    pool(*make_library(gpu), gpu);
  }
  EXPECT_EQ(handles_made(), made) << "new libraries reuse the handles of earlier ones";
}

// A handle works on one stream at a time.
TEST_F(VendorCalls, LibrariesBesideEachOtherShareNoHandle) {
  const auto first = make_library(0);
  const auto second = make_library(0);
  pool(*first, 0);
  const cudnnHandle_t used = last_used();
  pool(*second, 0);
  EXPECT_NE(last_used(), used);
}

TEST_F(VendorCalls, MapsAndMatricesAreOfTheTypeThatWasAskedFor) {
  const auto library = make_library(0);
  CudaStream stream = nullptr;
  ASSERT_EQ(cuda().stream_create(stream), CudaStatus::kSuccess);
  struct Type {
    DataType ours;
    cudnnDataType_t cudnn;
    cudaDataType_t cublas;
  };
  for (const Type& type :
       {Type{DataType::kF32, CUDNN_DATA_FLOAT, CUDA_R_32F}, Type{DataType::kF16, CUDNN_DATA_HALF, CUDA_R_16F},
        Type{DataType::kBf16, CUDNN_DATA_BFLOAT16, CUDA_R_16BF}}) {
    const PoolingSpec spec{.mode = PoolingMode::kMax, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
    for (const Direction direction : {Direction::kForward, Direction::kBackwardData}) {
      const auto op = library->pooling({.spec = spec,
                                        .x = {1, 8, 4, 4},
                                        .y = {1, 8, 2, 2},
                                        .direction = direction,
                                        .elements = type.ours});
      const std::array reads{floats_at(256, 128), floats_at(1024, 32), floats_at(2048, 32)};
      op->run({.reads = reads, .write = floats_at(4096, 128), .workspace = {}}, stream);
      EXPECT_EQ(map_type(), type.cudnn);
    }
    for (const auto& [result, cublas] :
         {std::pair(type.ours, type.cublas), std::pair(DataType::kF32, CUDA_R_32F)}) {
      const auto op = library->matrix_product(
          {.rows = 4, .columns = 8, .inner = 8, .factors = type.ours, .result = result});
      const std::array reads{floats_at(256, 32), floats_at(1024, 64)};
      op->run({.reads = reads, .write = floats_at(4096, 32), .workspace = {}}, stream);
      EXPECT_EQ(product_types(), std::pair(type.cublas, cublas));
    }
  }
  EXPECT_THROW(library->matrix_product({.rows = 4, .columns = 4, .inner = 4, .factors = DataType::kU8}),
               InvalidArgument);
  EXPECT_EQ(cuda().stream_synchronize(stream), CudaStatus::kSuccess);
  EXPECT_EQ(cuda().stream_destroy(stream), CudaStatus::kSuccess);
}

TEST_F(VendorCalls, ProductsKeepToTheirAlgorithm) {
  constexpr std::uint64_t kWorkspace = 1024;
  const auto library = make_library(1);
  const auto op = library->matrix_product(
      {.rows = 3, .columns = 5, .inner = 7, .transposed_b = true, .most_workspace_bytes = kWorkspace});
  EXPECT_EQ(op->workspace_bytes(), kWorkspace);
  CudaStream stream = nullptr;
  ASSERT_EQ(cuda().stream_create(stream), CudaStatus::kSuccess);
  const std::array reads{floats_at(16, 3 * 7), floats_at(256, 5 * 7)};
  op->run(
      {.reads = reads, .write = floats_at(4096, 3 * 5), .workspace = {.begin = 8192, .bytes = kWorkspace}},
      stream);
  EXPECT_EQ(cuda().stream_synchronize(stream), CudaStatus::kSuccess);
  EXPECT_EQ(cuda().stream_destroy(stream), CudaStatus::kSuccess);
}

// As floats these constants are cuDNN's minima. Regression: their doubles are slightly smaller, and
// cudnnSetLRNDescriptor refused them.
TEST_F(VendorCalls, TheLeastConstantsOfLrnAreTaken) {
  const auto library = make_library(0);
  const LrnSpec least{.size = 15, .beta = 0.01F, .k = 1e-5F};
  EXPECT_NO_THROW(library->lrn({.spec = least, .x = {2, 16, 4, 4}}));
}

}  // namespace
}  // namespace vdnn::cuda
