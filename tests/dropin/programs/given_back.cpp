// Memory that the program has freed is available to a library with its own runtime. If built without
// VDNN_LIBRARY, the program instead allocates such memory itself, by other functions than before. Each
// allocation is more than half of the GPU's memory.

#include "program.h"

#ifdef VDNN_LIBRARY
#include <dlfcn.h>
#endif

namespace {

constexpr std::size_t kBytes = 40 << 20;

void allocate_and_free() {
  const program::Buffer buffer(kBytes);
  CHECK(cudaMemset(buffer.data, 1, kBytes));
  CHECK(cudaDeviceSynchronize());
}

#ifdef VDNN_LIBRARY
void take_otherwise() {
  using Allocate = cudaError_t(void**, std::size_t);
  using Free = cudaError_t(void*);
  void* const library = dlopen(VDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  auto* const allocate = reinterpret_cast<Allocate*>(dlsym(library, "library_allocate"));
  auto* const free = reinterpret_cast<Free*>(dlsym(library, "library_free"));
  void* memory = nullptr;
  CHECK(allocate(&memory, kBytes));
  CHECK(free(memory));
}
#else
void take_otherwise() {
  void* memory = nullptr;
  CHECK(cudaMallocManaged(&memory, kBytes));
  CHECK(cudaFree(memory));
  std::size_t pitch = 0;
  CHECK(cudaMallocPitch(&memory, &pitch, 1 << 10, kBytes >> 10));
  CHECK(cudaFree(memory));
}
#endif

std::uint64_t body() {
  for (int round = 0; round < 4; ++round) {
    allocate_and_free();
    take_otherwise();
  }
  if (cudaGetLastError() != cudaSuccess) {
    throw program::Failure("the last error is set, although no call has failed");
  }
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
