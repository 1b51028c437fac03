#pragma once
// The functions of CUDA's driver that this library calls, found with cuGetProcAddress().

#include <cuda.h>
#include <cudaTypedefs.h>

namespace vdnn::preload {

// Names, and the versions that have these signatures.
#define VDNN_PRELOAD_DRIVER_CALLS(apply)                                                                     \
  apply(cuCtxEnablePeerAccess, 4000) apply(cuCtxGetCurrent, 4000) apply(cuCtxGetDevice, 2000) apply(         \
      cuCtxPopCurrent, 4000) apply(cuCtxPushCurrent, 4000) apply(cuCtxSetCurrent, 4000)                      \
      apply(cuCtxSynchronize, 2000) apply(cuDeviceCanAccessPeer, 4000) apply(cuDeviceGetCount, 2000) apply(  \
          cuDeviceGetPCIBusId, 4010) apply(cuDevicePrimaryCtxGetState, 7000)                                 \
          apply(cuDevicePrimaryCtxRelease, 11000) apply(cuDevicePrimaryCtxReset, 11000) apply(               \
              cuDevicePrimaryCtxRetain, 7000) apply(cuDriverGetVersion, 2020) apply(cuEventCreate, 2000)     \
              apply(cuEventDestroy, 4000) apply(cuEventElapsedTime, 2000) apply(cuEventQuery, 2000)          \
                  apply(cuEventRecord, 2000) apply(cuEventSynchronize, 2000) apply(cuGetErrorName, 6000)     \
                      apply(cuGraphDestroy, 10000) apply(cuGraphExecDestroy, 10000)                          \
                          apply(cuGraphInstantiateWithFlags, 11040) apply(cuGraphLaunch, 10000) apply(       \
                              cuIpcGetMemHandle, 4010) apply(cuMemAlloc, 3020) apply(cuMemAllocAsync, 11020) \
                              apply(cuMemFree, 3020) apply(cuMemFreeAsync, 11020) apply(cuMemFreeHost, 2000) \
                                  apply(cuMemGetInfo, 3020) apply(cuMemHostAlloc, 2020) apply(               \
                                      cuMemHostRegister, 6050) apply(cuMemHostUnregister, 4000)              \
                                      apply(cuMemcpyAsync, 4000) apply(cuStreamBeginCapture, 10010) apply(   \
                                          cuStreamCreate, 2000) apply(cuStreamDestroy, 4000)                 \
                                          apply(cuStreamEndCapture, 10000) apply(cuStreamGetCtx, 9020)       \
                                              apply(cuStreamGetId, 12000) apply(cuStreamIsCapturing, 10000)  \
                                                  apply(cuStreamQuery, 2000)                                 \
                                                      apply(cuStreamSynchronize, 2000)                       \
                                                          apply(cuStreamWaitEvent, 3020) apply(              \
                                                              cuThreadExchangeStreamCaptureMode, 10010)

struct DriverTable {
  // Looks up all other functions.
  PFN_cuGetProcAddress_v12000 cuGetProcAddress = nullptr;
// NOLINTNEXTLINE(bugprone-macro-parentheses): the macro makes a declaration
#define VDNN_PRELOAD_DRIVER_MEMBER(call, version) PFN_##call##_v##version call = nullptr;
  VDNN_PRELOAD_DRIVER_CALLS(VDNN_PRELOAD_DRIVER_MEMBER)
#undef VDNN_PRELOAD_DRIVER_MEMBER
};

// Throws DeviceError, which names the missing function, if the driver is too old.
DriverTable load_driver(PFN_cuGetProcAddress_v12000 look_up);

}  // namespace vdnn::preload
