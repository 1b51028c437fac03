// libcuda.so.1 for a process that has the stand-in runtime. PyTorch's library for run-time compilation links
// with it. The functions are the runtime's own (fakes/cudart/driver.cpp), so the process has only one fake.

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace {

template <class Function>
Function* of_runtime(const char* name) {
  void* found = nullptr;
  cudaGetDriverEntryPointByVersion(name, &found, CUDA_VERSION, cudaEnableDefault, nullptr);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

extern "C" {

CUresult cuCtxGetCurrent(CUcontext* context) {
  return of_runtime<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent")(context);
}
CUresult cuCtxSetCurrent(CUcontext context) {
  return of_runtime<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return of_runtime<decltype(cuDeviceGet)>("cuDeviceGet")(device, ordinal);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return of_runtime<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute")(value, attribute, device);
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return of_runtime<decltype(cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState")(device, flags,
                                                                                        active);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return of_runtime<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(context, device);
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  return of_runtime<decltype(cuGetErrorString)>("cuGetErrorString")(error, text);
}

}  // extern "C"
