#pragma once
// Deallocation that must not throw, and must not lose a block either. If the stream does not exist any more,
// or if the device or the heap refuses what the pool needs for the free, the block is freed unordered: the
// next user of the memory waits for the device (vdnn_allocator_statistics::freed_unordered counts such
// blocks). If the heap has no memory even for that, the host waits for the GPU and the block is freed idle.

#include <cuda_runtime_api.h>

#include "vdnn/allocator.h"

namespace vdnn {

// Waits for all work of the GPU that `block` lies on. While a blocking stream is captured, returns false
// without a wait, which would invalidate the capture. Also returns false if a call of CUDA fails. Leaves no
// error for cudaGetLastError().
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

// Completes a deallocation; `status` is the result of freeing `block` in the order of a stream. If no block
// in use begins at `block`, nothing changes, and vdnn_last_error() reports it. If the free needs a wait and
// `wait` returns false, the block stays in use. Tests pass a function other than wait_for_gpu_of().
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
