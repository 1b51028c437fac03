#pragma once
// The stream pool for programs that get CUB's temporary storage from a cub::CachingDeviceAllocator:
// CubAllocator has the functions DeviceAllocate() and DeviceFree() for one GPU, with the same results.
// Header-only, over a handle of vdnn/allocator.h; C++17.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "vdnn/allocator.h"

namespace vdnn {

// Thread-safe, and as cheap to copy as a pointer. The vdnn_allocator must outlive it.
//
// Calls return cudaErrorMemoryAllocation for lack of memory, cudaErrorInvalidValue for a mistake of the
// caller, and cudaErrorUnknown for any other failure. vdnn_last_error() has the details; cudaGetLastError()
// does not report these errors.
class CubAllocator {
 public:
  explicit CubAllocator(vdnn_allocator* allocator) noexcept : allocator_(allocator) {}

  // Sets `*block` to null on failure.
  cudaError_t DeviceAllocate(void** block, std::size_t bytes, cudaStream_t stream = nullptr) noexcept {
    if (block == nullptr) {
      return cudaErrorInvalidValue;
    }
    *block = nullptr;
    return error_of(vdnn_allocator_allocate(allocator_, bytes, stream, VDNN_TRANSIENT, block));
  }

  // Frees a block in the order of the stream that it was allocated for.
  cudaError_t DeviceFree(void* block) noexcept { return error_of(vdnn_allocator_free(allocator_, block)); }

 private:
  static cudaError_t error_of(vdnn_status status) noexcept {
    switch (status) {
      case VDNN_OK:
        return cudaSuccess;
      case VDNN_OUT_OF_MEMORY:
      case VDNN_NO_HOST_MEMORY:
        return cudaErrorMemoryAllocation;
      case VDNN_INVALID_ARGUMENT:
        return cudaErrorInvalidValue;
      default:
        return cudaErrorUnknown;
    }
  }

  vdnn_allocator* allocator_;
};

}  // namespace vdnn
