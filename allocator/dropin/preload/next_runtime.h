#pragma once
// What is behind the functions that the preloaded library puts in front: CUDA's runtime as the program has
// loaded it, or the driver, in the runtime's words, for programs that hold a runtime inside.

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace vdnn::preload {

#define VDNN_PRELOAD_CALLS(apply)                                                                    \
  apply(cudaMalloc) apply(cudaFree) apply(cudaMallocAsync) apply(cudaFreeAsync) apply(cudaHostAlloc) \
      apply(cudaFreeHost) apply(cudaMemGetInfo) apply(cudaStreamDestroy) apply(cudaDeviceReset)      \
          apply(cudaIpcGetMemHandle) apply(cudaStreamBeginCapture) apply(cudaStreamEndCapture)

// What else is needed of it.
#define VDNN_PRELOAD_HELPERS(apply)                                                                          \
  apply(cudaDeviceSynchronize) apply(cudaGetDevice) apply(cudaGetDeviceCount) apply(cudaGetLastError)        \
      apply(cudaGraphDestroy) apply(cudaSetDevice) apply(cudaStreamIsCapturing) apply(cudaStreamSynchronize) \
          apply(cudaThreadExchangeStreamCaptureMode)

// The driver's calls for contexts, whoever the runtime is. All are null where one of them is not found.
struct ContextCalls {
  PFN_cuStreamGetCtx_v9020 cuStreamGetCtx = nullptr;
  PFN_cuCtxGetCurrent_v4000 cuCtxGetCurrent = nullptr;
  PFN_cuCtxPushCurrent_v4000 cuCtxPushCurrent = nullptr;
  PFN_cuCtxGetDevice_v2000 cuCtxGetDevice = nullptr;
  PFN_cuCtxPopCurrent_v4000 cuCtxPopCurrent = nullptr;
  PFN_cuDevicePrimaryCtxGetState_v7000 cuDevicePrimaryCtxGetState = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 cuDevicePrimaryCtxRetain = nullptr;
  PFN_cuDevicePrimaryCtxRelease_v11000 cuDevicePrimaryCtxRelease = nullptr;

  bool are_known() const { return cuDevicePrimaryCtxRelease != nullptr; }
};

struct NextRuntime {
// NOLINTNEXTLINE(bugprone-macro-parentheses): what the macro makes is a declaration
#define VDNN_PRELOAD_MEMBER(call) decltype(&::call) call = nullptr;
  VDNN_PRELOAD_CALLS(VDNN_PRELOAD_MEMBER)
  VDNN_PRELOAD_HELPERS(VDNN_PRELOAD_MEMBER)
#undef VDNN_PRELOAD_MEMBER
  void* (*find)(const char* name) = nullptr;  // any other function of it
  bool is_driver = false;
  ContextCalls contexts;
};

// Throws DeviceError where the process has no shared runtime, or one that is too old.
NextRuntime find_next_runtime();
// Once there is a driver (driver_runtime.h).
NextRuntime make_driver_runtime();

// The calling thread's GPU, or -1: it has none, or another context than the GPU's primary one, which is the
// program's own affair.
int gpu_of_thread(const NextRuntime& next);

// That of a stream that a program has made; the thread's where nobody tells.
int gpu_of_stream(const NextRuntime& next, cudaStream_t stream);

// `work()`, with the calling thread at that GPU; then it is where it was before. Its error, or why the thread
// cannot get there or back.
template <class Work>
cudaError_t on_gpu(const NextRuntime& next, int ordinal, const Work& work);

// Of on_gpu(): whether there is a way back to go, and whereto.
struct Visit {
  bool changed = false;
  bool pushed = false;  // a context, on that of the program's own
  int before = -1;
};
cudaError_t enter(const NextRuntime& next, int ordinal, Visit& visit);
cudaError_t leave(const NextRuntime& next, const Visit& visit);

template <class Work>
cudaError_t on_gpu(const NextRuntime& next, int ordinal, const Work& work) {
  Visit visit;
  if (const cudaError_t error = enter(next, ordinal, visit); error != cudaSuccess) {
    return error;
  }
  const cudaError_t result = work();
  const cudaError_t back = leave(next, visit);
  return result == cudaSuccess ? back : result;
}

}  // namespace vdnn::preload
