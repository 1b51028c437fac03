#pragma once
// The functions of CUDA that the preloaded library's hooks call: those of the runtime that the program has
// loaded or, for programs with a runtime linked in, the driver's under the runtime's names.

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace vdnn::preload {

// The functions that the hooks replace.
#define VDNN_PRELOAD_CALLS(apply)                                                                    \
  apply(cudaMalloc) apply(cudaFree) apply(cudaMallocAsync) apply(cudaFreeAsync) apply(cudaHostAlloc) \
      apply(cudaFreeHost) apply(cudaMemGetInfo) apply(cudaStreamDestroy) apply(cudaDeviceReset)      \
          apply(cudaIpcGetMemHandle) apply(cudaStreamBeginCapture) apply(cudaStreamEndCapture)

// Functions that this library calls but has no hooks for.
#define VDNN_PRELOAD_HELPERS(apply)                                                                          \
  apply(cudaDeviceSynchronize) apply(cudaGetDevice) apply(cudaGetDeviceCount) apply(cudaGetLastError)        \
      apply(cudaGraphDestroy) apply(cudaSetDevice) apply(cudaStreamIsCapturing) apply(cudaStreamSynchronize) \
          apply(cudaThreadExchangeStreamCaptureMode)

// The driver's functions for contexts, whether the runtime is shared or linked in. All are null if one of
// them is not found.
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
// NOLINTNEXTLINE(bugprone-macro-parentheses): the macro makes a declaration
#define VDNN_PRELOAD_MEMBER(call) decltype(&::call) call = nullptr;
  VDNN_PRELOAD_CALLS(VDNN_PRELOAD_MEMBER)
  VDNN_PRELOAD_HELPERS(VDNN_PRELOAD_MEMBER)
#undef VDNN_PRELOAD_MEMBER
  void* (*find)(const char* name) = nullptr;  // looks up any other function
  bool is_driver = false;
  ContextCalls contexts;
};

// Throws DeviceError if the process has no shared runtime, or if that runtime is too old.
NextRuntime find_next_runtime();
// Valid once there is a driver (driver_runtime.h).
NextRuntime make_driver_runtime();

// The calling thread's GPU. -1 if the thread has none, or if its context is not the GPU's primary one: pools
// do not serve such contexts.
int gpu_of_thread(const NextRuntime& next);

// The GPU of a stream that the program has made; the thread's GPU if the driver does not report the
// stream's.
int gpu_of_stream(const NextRuntime& next, cudaStream_t stream);

// Calls work() with the GPU `ordinal` as the calling thread's, and restores the thread's GPU and context.
// Returns the error of work(), or of changing the GPU.
template <class Work>
cudaError_t on_gpu(const NextRuntime& next, int ordinal, const Work& work);

// The state that leave() restores, for on_gpu().
struct Visit {
  bool changed = false;
  bool pushed = false;  // a context was pushed on the program's own
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
