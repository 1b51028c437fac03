#include "allocator/dropin/preload/next_runtime.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "allocator/dropin/preload/driver_runtime.h"
#include "streams/cuda/cuda_runtime_table.h"
#include "vdnn/error.h"

namespace vdnn {

namespace preload {

namespace {

// RTLD_NEXT does not find libraries that the program has opened by dlopen(). The library stays loaded.
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

// Looks up the driver's functions through the runtime.
ContextCalls find_context_calls(const NextRuntime& next) {
  constexpr unsigned kVersion = 12000;
  const auto by_version =
      reinterpret_cast<cuda::FindInDriverByVersion>(next.find("cudaGetDriverEntryPointByVersion"));
  const auto newest = reinterpret_cast<cuda::FindInDriver>(next.find("cudaGetDriverEntryPoint"));
  bool found = by_version != nullptr || newest != nullptr;
  const auto find = [&](const char* name, auto& function) {
    if (!found) {
      return;
    }
    void* address = nullptr;
    cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = by_version != nullptr
                                  ? by_version(name, &address, kVersion, cudaEnableLegacyStream, &answer)
                                  : newest(name, &address, cudaEnableLegacyStream, &answer);
    if (error != cudaSuccess) {
      next.cudaGetLastError();
    }
    found = error == cudaSuccess && address != nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  ContextCalls calls;
  find("cuStreamGetCtx", calls.cuStreamGetCtx);
  find("cuCtxGetCurrent", calls.cuCtxGetCurrent);
  find("cuCtxPushCurrent", calls.cuCtxPushCurrent);
  find("cuCtxGetDevice", calls.cuCtxGetDevice);
  find("cuCtxPopCurrent", calls.cuCtxPopCurrent);
  find("cuDevicePrimaryCtxGetState", calls.cuDevicePrimaryCtxGetState);
  find("cuDevicePrimaryCtxRetain", calls.cuDevicePrimaryCtxRetain);
  find("cuDevicePrimaryCtxRelease", calls.cuDevicePrimaryCtxRelease);
  return found ? calls : ContextCalls{};
}

ContextCalls context_calls_of(const DriverTable& table) {
  return {.cuStreamGetCtx = table.cuStreamGetCtx,
          .cuCtxGetCurrent = table.cuCtxGetCurrent,
          .cuCtxPushCurrent = table.cuCtxPushCurrent,
          .cuCtxGetDevice = table.cuCtxGetDevice,
          .cuCtxPopCurrent = table.cuCtxPopCurrent,
          .cuDevicePrimaryCtxGetState = table.cuDevicePrimaryCtxGetState,
          .cuDevicePrimaryCtxRetain = table.cuDevicePrimaryCtxRetain,
          .cuDevicePrimaryCtxRelease = table.cuDevicePrimaryCtxRelease};
}

// The primary context of a GPU, without retaining it; null if the process does not use the GPU.
CUcontext primary_in_use(const ContextCalls& calls, int ordinal) {
  unsigned flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  if (calls.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      calls.cuDevicePrimaryCtxRetain(&primary, ordinal) != CUDA_SUCCESS) {
    return nullptr;
  }
  calls.cuDevicePrimaryCtxRelease(ordinal);
  return primary;
}

// Whether the current context of the thread, whose GPU is `ordinal`, is not the GPU's primary one.
bool has_own_context(const ContextCalls& calls, int ordinal) {
  // For each GPU, the primary context that was seen last, so that most calls ask the driver only once.
  static std::array<std::atomic<CUcontext>, 64> seen_primary{};
  std::atomic<CUcontext>& seen = seen_primary.at(static_cast<std::size_t>(ordinal) % seen_primary.size());
  CUcontext current = nullptr;
  if (!calls.are_known() || calls.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr ||
      current == seen) {
    return false;
  }
  CUcontext const primary = primary_in_use(calls, ordinal);
  if (current == primary) {
    seen = primary;
  }
  return current != primary;
}

}  // namespace

NextRuntime find_next_runtime() {
  NextRuntime runtime = load(find_next);
  runtime.contexts = find_context_calls(runtime);
  return runtime;
}

NextRuntime make_driver_runtime() {
  NextRuntime runtime = load(find_in_driver_runtime);
  runtime.is_driver = true;
  runtime.contexts = context_calls_of(*driver());
  return runtime;
}

int gpu_of_thread(const NextRuntime& next) {
  CUcontext context = nullptr;
  if (next.is_driver && (context = current_context()) == nullptr) {
    return -1;
  }
  int ordinal = -1;
  if (next.cudaGetDevice(&ordinal) != cudaSuccess) {
    return -1;
  }
  const bool is_own =
      next.is_driver ? !is_primary(context, ordinal) : has_own_context(next.contexts, ordinal);
  return is_own ? -1 : ordinal;
}

int gpu_of_stream(const NextRuntime& next, cudaStream_t stream) {
  const int mine = gpu_of_thread(next);
  const ContextCalls& calls = next.contexts;
  CUcontext context = nullptr;
  CUcontext current = nullptr;
  if (mine < 0 || !calls.are_known() || calls.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      calls.cuCtxGetCurrent(&current) != CUDA_SUCCESS || context == current ||
      calls.cuCtxPushCurrent(context) != CUDA_SUCCESS) {
    return mine;
  }
  CUdevice device = -1;
  const bool known = calls.cuCtxGetDevice(&device) == CUDA_SUCCESS;
  calls.cuCtxPopCurrent(&current);
  if (!known) {
    return mine;
  }
  return context == primary_in_use(calls, device) ? device : -1;
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
  if (error == cudaSuccess && has_own_context(next.contexts, visit.before)) {
    CUcontext const primary = primary_in_use(next.contexts, ordinal);
    visit.changed = primary != nullptr && next.contexts.cuCtxPushCurrent(primary) == CUDA_SUCCESS;
    visit.pushed = visit.changed;
    return visit.changed ? cudaSuccess : cudaErrorDeviceUninitialized;
  }
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
  if (!next.is_driver && !visit.pushed) {
    return next.cudaSetDevice(visit.before);
  }
  CUcontext context = nullptr;
  return static_cast<cudaError_t>(next.contexts.cuCtxPopCurrent(&context));
}

}  // namespace preload

// This library links no runtime of its own: it calls the program's.
std::unique_ptr<CudaApi> make_cuda_api() {
  return cuda::make_cuda_api(cuda::RuntimeSymbols(preload::find_next));
}

}  // namespace vdnn
