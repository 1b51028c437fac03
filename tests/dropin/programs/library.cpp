// A library with its own runtime, for programs that do not know vdnn (shared_memory.cpp).

#include <cuda_runtime_api.h>

#include <cstddef>

extern "C" {

cudaError_t library_allocate(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes);
}
cudaError_t library_free(void* memory) {
  return cudaFree(memory);
}
cudaError_t library_free_host(void* memory) {
  return cudaFreeHost(memory);
}
cudaError_t library_allocate_host(void** memory, std::size_t bytes) {
  return cudaMallocHost(memory, bytes);
}
cudaError_t library_reset() {
  return cudaDeviceReset();
}

}  // extern "C"
