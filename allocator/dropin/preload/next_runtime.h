#pragma once
// CUDA's runtime as the program has loaded it, behind the functions that the preloaded library puts in front.

#include <cuda_runtime_api.h>

namespace vdnn::preload {

#define VDNN_PRELOAD_CALLS(apply)                                                                     \
  apply(cudaMalloc) apply(cudaFree) apply(cudaMallocAsync) apply(cudaFreeAsync) apply(cudaMallocHost) \
      apply(cudaHostAlloc) apply(cudaFreeHost) apply(cudaMemGetInfo) apply(cudaStreamDestroy)         \
          apply(cudaDeviceReset) apply(cudaIpcGetMemHandle)

// What else is needed of it.
#define VDNN_PRELOAD_HELPERS(apply) \
  apply(cudaDeviceSynchronize) apply(cudaGetDevice) apply(cudaGetLastError) apply(cudaSetDevice)

struct NextRuntime {
// NOLINTNEXTLINE(bugprone-macro-parentheses): what the macro makes is a declaration
#define VDNN_PRELOAD_MEMBER(call) decltype(&::call) call = nullptr;
  VDNN_PRELOAD_CALLS(VDNN_PRELOAD_MEMBER)
  VDNN_PRELOAD_HELPERS(VDNN_PRELOAD_MEMBER)
#undef VDNN_PRELOAD_MEMBER
};

// Throws DeviceError where the process has no shared runtime, or one that is too old.
NextRuntime find_next_runtime();

}  // namespace vdnn::preload
