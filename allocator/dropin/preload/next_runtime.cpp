#include "allocator/dropin/preload/next_runtime.h"

#include <dlfcn.h>

#include <memory>
#include <string>
#include <type_traits>

#include "allocator/dropin/preload/driver_runtime.h"
#include "streams/cuda/cuda_runtime_table.h"
#include "vdnn/error.h"

namespace vdnn {

namespace preload {

namespace {

// What a program has opened for itself alone is not behind us in the order of the loader. It stays.
void* find_in_loaded(const char* name) {
  for (const char* const library : {"libcudart.so.13", "libcudart.so.12"}) {
    if (void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE); handle != nullptr) {
      void* const found = dlsym(handle, name);
      dlclose(handle);
      return found;
    }
  }
  return nullptr;
}

void* find_next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  return found == nullptr ? find_in_loaded(name) : found;
}

NextRuntime load(void* (*find)(const char* name)) {
  NextRuntime runtime;
  runtime.find = find;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(name));
    if (function == nullptr) {
      throw DeviceError(std::string("the CUDA runtime has no ") + name);
    }
  };
#define VDNN_PRELOAD_FOUND(call) load(#call, runtime.call);
  VDNN_PRELOAD_CALLS(VDNN_PRELOAD_FOUND)
  VDNN_PRELOAD_HELPERS(VDNN_PRELOAD_FOUND)
#undef VDNN_PRELOAD_FOUND
  return runtime;
}

}  // namespace

NextRuntime find_next_runtime() {
  return load(find_next);
}

NextRuntime make_driver_runtime() {
  NextRuntime runtime = load(find_in_driver_runtime);
  runtime.is_driver = true;
  return runtime;
}

int gpu_of_thread(const NextRuntime& next) {
  CUcontext context = nullptr;
  if (next.is_driver && (context = current_context()) == nullptr) {
    return -1;
  }
  int ordinal = -1;
  const bool known = next.cudaGetDevice(&ordinal) == cudaSuccess;
  return known && (!next.is_driver || is_primary(context, ordinal)) ? ordinal : -1;
}

std::optional<ContextCalls> find_context_calls(const NextRuntime& next) {
  ContextCalls calls;
  if (next.is_driver) {
    const DriverTable& table = *driver();
    calls = {.cuStreamGetCtx = table.cuStreamGetCtx,
             .cuCtxGetCurrent = table.cuCtxGetCurrent,
             .cuCtxPushCurrent = table.cuCtxPushCurrent,
             .cuCtxGetDevice = table.cuCtxGetDevice,
             .cuCtxPopCurrent = table.cuCtxPopCurrent};
    return calls;
  }
  constexpr unsigned kVersion = 12000;
  const auto by_version =
      reinterpret_cast<cuda::FindInDriverByVersion>(next.find("cudaGetDriverEntryPointByVersion"));
  const auto newest = reinterpret_cast<cuda::FindInDriver>(next.find("cudaGetDriverEntryPoint"));
  const auto find = [&](const char* name, auto& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaErrorNotSupported;
    if (by_version != nullptr) {
      error = by_version(name, &found, kVersion, cudaEnableLegacyStream, &answer);
    } else if (newest != nullptr) {
      error = newest(name, &found, cudaEnableLegacyStream, &answer);
    }
    if (error != cudaSuccess) {
      next.cudaGetLastError();
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    return error == cudaSuccess && found != nullptr;
  };
  const bool found =
      find("cuStreamGetCtx", calls.cuStreamGetCtx) && find("cuCtxGetCurrent", calls.cuCtxGetCurrent) &&
      find("cuCtxPushCurrent", calls.cuCtxPushCurrent) && find("cuCtxGetDevice", calls.cuCtxGetDevice) &&
      find("cuCtxPopCurrent", calls.cuCtxPopCurrent);
  return found ? std::optional(calls) : std::nullopt;
}

int gpu_of_stream(const NextRuntime& next, const ContextCalls& calls, cudaStream_t stream) {
  CUcontext context = nullptr;
  CUcontext mine = nullptr;
  if (calls.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      calls.cuCtxGetCurrent(&mine) != CUDA_SUCCESS || context == mine ||
      calls.cuCtxPushCurrent(context) != CUDA_SUCCESS) {
    return gpu_of_thread(next);
  }
  CUdevice device = -1;
  const bool known = calls.cuCtxGetDevice(&device) == CUDA_SUCCESS;
  calls.cuCtxPopCurrent(&mine);
  if (!known) {
    return gpu_of_thread(next);
  }
  return next.is_driver && !is_primary(context, device) ? -1 : device;
}

cudaError_t enter(const NextRuntime& next, int ordinal, Visit& visit) {
  if (next.is_driver) {
    CUcontext context = nullptr;
    CUresult result = primary_context(context, ordinal);
    if (result == CUDA_SUCCESS && context != current_context()) {
      result = driver()->cuCtxPushCurrent(context);
      visit.changed = result == CUDA_SUCCESS;
    }
    return static_cast<cudaError_t>(result);
  }
  cudaError_t error = next.cudaGetDevice(&visit.before);
  if (error == cudaSuccess && visit.before != ordinal) {
    error = next.cudaSetDevice(ordinal);
    visit.changed = error == cudaSuccess;
  }
  return error;
}

cudaError_t leave(const NextRuntime& next, const Visit& visit) {
  if (!visit.changed) {
    return cudaSuccess;
  }
  if (!next.is_driver) {
    return next.cudaSetDevice(visit.before);
  }
  CUcontext context = nullptr;
  return static_cast<cudaError_t>(driver()->cuCtxPopCurrent(&context));
}

}  // namespace preload

// In this library CUDA itself is the program's runtime: no other is linked.
std::unique_ptr<CudaApi> make_cuda_api() {
  return cuda::make_cuda_api(cuda::RuntimeSymbols(preload::find_next));
}

}  // namespace vdnn
