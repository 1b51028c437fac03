#pragma once
// CUDA's runtime as the functions that are called of it, from wherever they come: linked into the program, or
// found by name in the runtime that a foreign program has loaded. Each member is named like the function, so
// that code in a class that derives from the table calls it as one calls CUDA.

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

// How functions of the driver are found: since CUDA 12.5 by their version, which earlier headers do not
// declare, and earlier as the newest that the runtime knows, which later toolkits call deprecated.
using FindInDriverByVersion = cudaError_t (*)(const char* name, void** function, unsigned version,
                                              unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* answer);
using FindInDriver = cudaError_t (*)(const char* name, void** function, unsigned long long flags,
                                     cudaDriverEntryPointQueryResult* answer);

struct RuntimeTable {
// NOLINTNEXTLINE(bugprone-macro-parentheses): what the macro makes is a declaration
#define VDNN_CUDA_RUNTIME_MEMBER(call) decltype(&::call) call = nullptr;
  VDNN_CUDA_RUNTIME_CALLS(VDNN_CUDA_RUNTIME_MEMBER)
#undef VDNN_CUDA_RUNTIME_MEMBER
  FindInDriverByVersion cudaGetDriverEntryPointByVersion = nullptr;  // null: the other one is there
  FindInDriver cudaGetDriverEntryPoint = nullptr;
};

// What a loaded runtime has under a name, or null.
using RuntimeSymbols = std::function<void*(const char* name)>;

// CUDA by these functions. What the runtime lacks, 12.0 being the first that has all, why_missing() says.
std::unique_ptr<CudaApi> make_cuda_api(const RuntimeTable& runtime);
std::unique_ptr<CudaApi> make_cuda_api(const RuntimeSymbols& symbols);

}  // namespace vdnn::cuda
