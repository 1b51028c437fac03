// A program and its library, each with its own runtime inside. Each frees what the other allocated, and the
// library resets the GPU. Meanwhile a plugin that is linked with the shared runtime is loaded and unloaded.

#include <dlfcn.h>

#include "program.h"

namespace {

template <class Function>
Function* find(void* library, const char* name) {
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) {
    throw program::Failure(dlerror());
  }
  return reinterpret_cast<Function*>(found);
}

std::uint64_t use(void* memory, std::size_t bytes, int value) {
  std::vector<unsigned char> back(bytes);
  CHECK(cudaMemset(memory, value, bytes));
  CHECK(cudaMemcpy(back.data(), memory, bytes, cudaMemcpyDeviceToHost));
  program::Checksum sum;
  sum.add(back.data(), bytes);
  return sum.value();
}

std::uint64_t body() {
  constexpr std::size_t kBytes = 1 << 20;
  void* const library = dlopen(VDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  auto* const library_free = find<cudaError_t(void*)>(library, "library_free");
  auto* const library_free_host = find<cudaError_t(void*)>(library, "library_free_host");
  auto* const library_allocate_host =
      find<cudaError_t(void**, std::size_t)>(library, "library_allocate_host");
  auto* const library_reset = find<cudaError_t()>(library, "library_reset");

  void* const plugin = dlopen(VDNN_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  find<cudaError_t(void**, std::size_t)>(plugin, "cudaMalloc");
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, kBytes));
  dlclose(plugin);
  std::uint64_t sum = use(memory, kBytes, 1);
  CHECK(library_free(memory));
  if (library_free(memory) != cudaErrorInvalidValue) {
    throw program::Failure("a library can free memory twice");
  }

  void* host = nullptr;
  CHECK(cudaMallocHost(&host, kBytes));
  CHECK(library_free_host(host));
  CHECK(library_allocate_host(&host, kBytes / 2));
  std::memset(host, 1, kBytes / 2);
  CHECK(cudaFreeHost(host));
  CHECK(cudaMallocHost(&host, kBytes));
  std::memset(host, 2, kBytes);
  CHECK(cudaFreeHost(host));

  CHECK(cudaMalloc(&memory, kBytes));
  CHECK(library_reset());
  CHECK(cudaMalloc(&memory, kBytes));
  sum = 31 * sum + use(memory, kBytes, 2);
  CHECK(cudaFree(memory));
  return sum;
}

}  // namespace

int main() {
  return program::run(body);
}
