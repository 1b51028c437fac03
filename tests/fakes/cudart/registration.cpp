// Functions that programs built by nvcc with -cudart shared call before main() and at kernel launches.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/fakes/cudart/launch.h"

using vdnn::stand_in::launch;

namespace {

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

// The launch configuration between <<<...>>> and the launch, on one thread.
Configuration& configuration() {
  thread_local Configuration current;
  return current;
}

}  // namespace

// These names are the compiler's.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 0;
}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
  configuration() = {.grid = grid, .block = block, .shared_bytes = shared_bytes, .stream = stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  const Configuration& current = configuration();
  *grid = current.grid;
  *block = current.block;
  *shared_bytes = current.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = current.stream;
  return cudaSuccess;
}

// Older compilers launch by the stub's address, newer ones first request a handle.
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void*, void**) {
  return launch(configuration->stream);
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream == nullptr ? cudaStreamPerThread : stream);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
