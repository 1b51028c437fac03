#pragma once
// Deallocation that must not throw, and yet must not lose a block where the device refuses what the pool asks
// of it meanwhile: then the host waits, and the block goes back idle.

#include <cuda_runtime_api.h>

#include "vdnn/allocator.h"

namespace vdnn {

// `status` is what giving `block` back in the order of `stream` has answered. Misuse is left as it is.
inline void finish_deallocation(vdnn_status status, vdnn_allocator* allocator, void* block,
                                cudaStream_t stream) noexcept {
  if (status == VDNN_DEVICE_ERROR && cudaStreamSynchronize(stream) == cudaSuccess) {
    vdnn_allocator_free_idle(allocator, block);
  }
}

}  // namespace vdnn
