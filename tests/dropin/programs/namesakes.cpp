// Looks up a library's function that has the same name as one of the driver's. Another library, with its own
// runtime, goes on to use the driver's function.

#include <cuda.h>
#include <dlfcn.h>

#include "program.h"

namespace {

template <class Function>
Function* find(const char* library, const char* name) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* const found = opened == nullptr ? nullptr : dlsym(opened, name);
  if (found == nullptr) {
    throw program::Failure(dlerror());
  }
  return reinterpret_cast<Function*>(found);
}

std::uint64_t body() {
  constexpr std::size_t kBytes = 1 << 20;
  auto* const library_allocate = find<cudaError_t(void**, std::size_t)>(VDNN_LIBRARY, "library_allocate");
  auto* const library_free = find<cudaError_t(void*)>(VDNN_LIBRARY, "library_free");
  program::Checksum sum;
  for (int round = 0; round < 2; ++round) {
    void* memory = nullptr;
    CHECK(library_allocate(&memory, kBytes));
    std::vector<unsigned char> back(kBytes);
    CHECK(cudaMemset(memory, round, kBytes));
    CHECK(cudaMemcpy(back.data(), memory, kBytes, cudaMemcpyDeviceToHost));
    sum.add(back.data(), kBytes);
    CHECK(library_free(memory));
    auto* const namesake = find<CUresult(CUdeviceptr*, std::size_t)>(VDNN_NAMESAKE, "cuMemAlloc_v2");
    CUdeviceptr nothing = 1;
    if (namesake(&nothing, kBytes) != CUDA_ERROR_NOT_SUPPORTED || nothing != 0) {
      throw program::Failure("the lookup has returned another library's function");
    }
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
