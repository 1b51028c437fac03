#include "allocator/dropin/preload/next_runtime.h"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "streams/cuda/cuda_runtime_table.h"
#include "vdnn/error.h"

namespace vdnn {

namespace preload {

namespace {

// What a program has opened for itself alone is not behind us in the order of the loader.
void* find_in_loaded(const char* name) {
  for (const char* const library : {"libcudart.so.13", "libcudart.so.12"}) {
    if (void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD); handle != nullptr) {
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

}  // namespace

NextRuntime find_next_runtime() {
  NextRuntime runtime;
  const auto find = [](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_next(name));
    if (function == nullptr) {
      throw DeviceError(std::string("the CUDA runtime has no ") + name);
    }
  };
#define VDNN_PRELOAD_FOUND(call) find(#call, runtime.call);
  VDNN_PRELOAD_CALLS(VDNN_PRELOAD_FOUND)
  VDNN_PRELOAD_HELPERS(VDNN_PRELOAD_FOUND)
#undef VDNN_PRELOAD_FOUND
  return runtime;
}

}  // namespace preload

// In this library CUDA itself is the program's runtime: no other is linked.
std::unique_ptr<CudaApi> make_cuda_api() {
  return cuda::make_cuda_api(cuda::RuntimeSymbols(preload::find_next));
}

}  // namespace vdnn
