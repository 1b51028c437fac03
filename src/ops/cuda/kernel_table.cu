// Launches the kernels that kernels/ defines.

#include <cuda_runtime_api.h>

#include <string>

#include "src/ops/cuda/gpu_shortage.h"
#include "src/ops/cuda/kernel_table.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

namespace {

class DeviceBlock {
 public:
  __device__ std::uint64_t index() const { return blockIdx.x; }
  __device__ std::uint64_t count() const { return gridDim.x; }

  template <class Phase>
  __device__ void each(const Phase& phase) {
    phase(threadIdx.x);
    __syncthreads();
  }
};

template <class Kernel>
__global__ void __launch_bounds__(kBlockThreads) run(const Kernel kernel) {
  using Shared = typename SharedOf<Kernel>::Type;
  // The array has bytes as elements, since CUDA does not permit initialised shared memory.
  alignas(Shared) __shared__ unsigned char shared[sizeof(Shared)];
  DeviceBlock block;
  run_block(kernel, block, *reinterpret_cast<Shared*>(shared));
}

[[noreturn]] void fail(const char* kernel, std::uint64_t blocks, cudaError_t error) {
  const std::string what = "cuda: kernel " + std::string(kernel) + " over " + std::to_string(blocks) +
                           " blocks of " + std::to_string(kBlockThreads) +
                           " threads failed to launch: " + cudaGetErrorName(error) + " (" +
                           cudaGetErrorString(error) + ")";
  if (error == cudaErrorMemoryAllocation) {
    throw_out_of_memory(what);
  }
  throw DeviceError(what);
}

// The architecture of the calling thread's GPU, for example "9.0".
std::string architecture() {
  int ordinal = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&ordinal) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
    cudaGetLastError();
    return "unknown";
  }
  return std::to_string(properties.major) + "." + std::to_string(properties.minor);
}

// This check queries one kernel, since all kernels are built for the same architectures. Launches report
// other problems of the GPU.
void require_code_for_this_gpu() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, run<ReluForward<Fp32>>);
  if (error != cudaSuccess) {
    cudaGetLastError();
  }
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    throw DeviceError("cuda: this build has no kernels for a GPU of architecture " + architecture() + " (" +
                      cudaGetErrorName(error) + "); build with VDNN_CUDA_ARCHITECTURES for it");
  }
}

template <class Kernel>
void submit(const Kernel& kernel, cudaStream_t stream) {
  const std::uint64_t blocks = blocks_of(kernel);
  constexpr std::uint64_t kMostBlocks = 0x7fffffff;  // limit of a grid's first dimension on every GPU
  if (blocks > kMostBlocks) {
    fail(Kernel::kName, blocks, cudaErrorInvalidConfiguration);
  }
  // <<<>>> reports errors only in the thread's last error, which may come from the program's own calls.
  void* argument = const_cast<Kernel*>(&kernel);
  const cudaError_t error = cudaLaunchKernel(run<Kernel>, dim3(static_cast<unsigned>(blocks)),
                                             dim3(kBlockThreads), &argument, 0, stream);
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears the thread's last error, since fail() reports it
    fail(Kernel::kName, blocks, error);
  }
}

class DeviceKernelTable final : public KernelTable {
 public:
  void launch(const Kernel& kernel, void* stream) const override {
    std::visit([&](const auto& known) { submit(known, static_cast<cudaStream_t>(stream)); }, kernel);
  }
};

}  // namespace

std::unique_ptr<const KernelTable> make_kernel_table() {
  require_code_for_this_gpu();
  return std::make_unique<DeviceKernelTable>();
}

}  // namespace vdnn::cuda
