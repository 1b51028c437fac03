#pragma once
// Deallocation that must not throw, and yet must not lose a block. Where the stream does not exist any more,
// or device or heap refuse what the pool asks of them meanwhile, the block goes back in no order: whoever is
// given the memory next waits for the device (vdnn_allocator_statistics::freed_unordered counts such blocks).
// Only where the heap does not even permit that, the host waits for the GPU, and the block goes back idle.

#include <cuda_runtime_api.h>

#include "vdnn/allocator.h"

namespace vdnn {

// Whether all work is done of the GPU that `block` lies on, whichever stream uses it. False where a blocking
// stream is captured, which the wait would invalidate. Leaves no last error behind.
inline bool wait_for_gpu_of(const void* block) noexcept {
  int mine = 0;
  cudaPointerAttributes of{};
  if (cudaGetDevice(&mine) != cudaSuccess || cudaPointerGetAttributes(&of, block) != cudaSuccess ||
      cudaSetDevice(of.device) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const bool done = cudaStreamIsCapturing(cudaStreamLegacy, &capture) == cudaSuccess &&
                    cudaDeviceSynchronize() == cudaSuccess;
  if (!done) {
    cudaGetLastError();
  }
  cudaSetDevice(mine);
  return done;
}

// `status` is what giving `block` back in the order of a stream has answered. What is no block is left as it
// is, and vdnn_last_error() says so. What `wait` (wait_for_gpu_of() but in tests) cannot wait for stays in
// use.
template <class Wait = bool (*)(const void*)>
void finish_deallocation(vdnn_status status, vdnn_allocator* allocator, void* block,
                         const Wait& wait = wait_for_gpu_of) noexcept {
  const bool refused =
      status == VDNN_INVALID_ARGUMENT || status == VDNN_DEVICE_ERROR || status == VDNN_NO_HOST_MEMORY;
  if (refused && vdnn_allocator_free_unordered(allocator, block) == VDNN_NO_HOST_MEMORY && wait(block)) {
    vdnn_allocator_free_idle(allocator, block);
  }
}

}  // namespace vdnn
