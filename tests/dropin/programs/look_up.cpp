// Looks up functions as interposing tools do: the next definition after the program's, and a function that a
// library does not have.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

int main() {
  Dl_info library{};
  // The next definition after the program's is the runtime's, or that of a library preloaded in front of it.
  void* const next = dlsym(RTLD_NEXT, "cudaMalloc");
  const bool found = next != nullptr && dladdr(next, &library) != 0;
  std::printf("next: %s\n", !found                                                   ? "none"
                            : std::strstr(library.dli_fname, "libcudart") != nullptr ? "runtime"
                                                                                     : "preloaded");
  dlerror();
  const void* const absent = dlsym(dlopen("libc.so.6", RTLD_NOW), "cuMemAlloc_v2");
  std::printf("absent: %s\n", absent == nullptr && dlerror() != nullptr ? "not found" : "found");
  return cudaFree(nullptr) == cudaSuccess ? 0 : 3;  // keeps the runtime linked
}
