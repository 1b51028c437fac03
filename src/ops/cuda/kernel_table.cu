// Launches the kernels that kernels/ defines. Nothing is computed here.

#include <cuda_runtime_api.h>

#include <string>

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
  // As bytes: shared memory is not initialised.
  alignas(Shared) __shared__ unsigned char shared[sizeof(Shared)];
  DeviceBlock block;
  run_block(kernel, block, *reinterpret_cast<Shared*>(shared));
}

[[noreturn]] void fail(const char* kernel, std::uint64_t blocks, cudaError_t error) {
  throw DeviceError("cuda: kernel " + std::string(kernel) + " over " + std::to_string(blocks) +
                    " blocks of " + std::to_string(kBlockThreads) + " threads failed to launch: " +
                    cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")");
}

template <class Kernel>
void submit(const Kernel& kernel, cudaStream_t stream) {
  const std::uint64_t blocks = blocks_of(kernel);
  constexpr std::uint64_t kMostBlocks = 0x7fffffff;  // of a grid's first dimension, on every GPU
  if (blocks > kMostBlocks) {
    fail(Kernel::kName, blocks, cudaErrorInvalidConfiguration);
  }
  run<<<static_cast<unsigned>(blocks), kBlockThreads, 0, stream>>>(kernel);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
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
  return std::make_unique<DeviceKernelTable>();
}

}  // namespace vdnn::cuda
