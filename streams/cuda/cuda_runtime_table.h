#pragma once
// The functions of CUDA's runtime that we call, either linked into the program or found by name in the
// runtime that a foreign program has loaded. Each member has the name of its function, so a class derived
// from the table calls CUDA in the usual way.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "streams/cuda/cuda_api.h"

namespace vdnn::cuda {

#define VDNN_CUDA_RUNTIME_CALLS(apply)                                                                     \
  apply(cudaDeviceCanAccessPeer) apply(cudaDeviceEnablePeerAccess) apply(cudaDeviceGetPCIBusId)            \
      apply(cudaDeviceSynchronize) apply(cudaDriverGetVersion) apply(cudaEventCreateWithFlags)             \
          apply(cudaEventDestroy) apply(cudaEventElapsedTime) apply(cudaEventQuery) apply(cudaEventRecord) \
              apply(cudaEventSynchronize) apply(cudaFree) apply(cudaGetDevice) apply(cudaGetDeviceCount)   \
                  apply(cudaGetErrorName) apply(cudaGetLastError) apply(cudaGraphDestroy)                  \
                      apply(cudaGraphExecDestroy) apply(cudaGraphInstantiate) apply(cudaGraphLaunch)       \
                          apply(cudaHostRegister) apply(cudaHostUnregister) apply(cudaMalloc)              \
                              apply(cudaMemGetInfo) apply(cudaMemcpyAsync) apply(cudaPeekAtLastError)      \
                                  apply(cudaRuntimeGetVersion) apply(cudaSetDevice)                        \
                                      apply(cudaStreamBeginCapture) apply(cudaStreamCreateWithFlags)       \
                                          apply(cudaStreamDestroy) apply(cudaStreamEndCapture)             \
                                              apply(cudaStreamGetId) apply(cudaStreamIsCapturing)          \
                                                  apply(cudaStreamQuery) apply(cudaStreamSynchronize)      \
                                                      apply(cudaStreamWaitEvent)                           \
                                                          apply(cudaThreadExchangeStreamCaptureMode)

// The two functions that find functions of the driver. FindInDriverByVersion, new in CUDA 12.5, finds a
// given version. FindInDriver finds the newest version that the runtime knows; later toolkits deprecate it.
using FindInDriverByVersion = cudaError_t (*)(const char* name, void** function, unsigned version,
                                              unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* answer);
using FindInDriver = cudaError_t (*)(const char* name, void** function, unsigned long long flags,
                                     cudaDriverEntryPointQueryResult* answer);

struct RuntimeTable {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the macro makes a declaration
#define VDNN_CUDA_RUNTIME_MEMBER(call) decltype(&::call) call = nullptr;
  VDNN_CUDA_RUNTIME_CALLS(VDNN_CUDA_RUNTIME_MEMBER)
#undef VDNN_CUDA_RUNTIME_MEMBER
  FindInDriverByVersion cudaGetDriverEntryPointByVersion = nullptr;  // null: use cudaGetDriverEntryPoint
  FindInDriver cudaGetDriverEntryPoint = nullptr;
};

// Returns the address of a function of a loaded runtime, or null.
using RuntimeSymbols = std::function<void*(const char* name)>;

// Makes the table of CUDA's calls from these functions. why_missing() names the functions that the runtime
// lacks; CUDA 12.0 is the first version that has all of them.
std::unique_ptr<CudaApi> make_cuda_api(const RuntimeTable& runtime);
std::unique_ptr<CudaApi> make_cuda_api(const RuntimeSymbols& symbols);

}  // namespace vdnn::cuda
