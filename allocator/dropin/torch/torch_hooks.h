#pragma once
// The functions of libvdnn_torch.so that PyTorch looks up by name:
//
//   allocator = torch.cuda.memory.CUDAPluggableAllocator(
//       "libvdnn_torch.so", "vdnn_torch_malloc", "vdnn_torch_free")
//   torch.cuda.memory.change_current_allocator(allocator)
//
// The other hooks are optional. A program passes their addresses to the setters of allocator.allocator(),
// for example set_record_stream_fn(). The types are those of torch/csrc/cuda/CUDAPluggableAllocator.h;
// streams are cudaStream_t. torch_allocator.h describes what each hook does. The allocator is never
// destroyed, since PyTorch frees blocks while the process ends.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "allocator/dropin/torch/torch_allocator.h"

#define VDNN_TORCH_HOOK extern "C" __attribute__((visibility("default")))

// Returns a block or throws: torch.OutOfMemoryError with the pool's numbers if there is no memory,
// RuntimeError if the device refuses. Returns null in a process without PyTorch.
VDNN_TORCH_HOOK void* vdnn_torch_malloc(ssize_t bytes, int device, void* stream);
VDNN_TORCH_HOOK void vdnn_torch_free(void* block, ssize_t bytes, int device, void* stream);
VDNN_TORCH_HOOK void vdnn_torch_init(int devices);
VDNN_TORCH_HOOK void vdnn_torch_reset();  // empties the caches
VDNN_TORCH_HOOK void vdnn_torch_set_memory_fraction(double fraction, int device);
// Sets the budget in bytes. Call it before the first allocation on the GPU. PyTorch itself does not call
// this function.
VDNN_TORCH_HOOK vdnn_status vdnn_torch_set_budget(std::uint64_t bytes, int device);
VDNN_TORCH_HOOK void* vdnn_torch_get_base_allocation(void* block, std::size_t* bytes);
VDNN_TORCH_HOOK void vdnn_torch_record_stream(void* block, void* stream);
VDNN_TORCH_HOOK void vdnn_torch_begin_allocate_to_pool(int device, vdnn::TorchPoolId id,
                                                       vdnn::TorchStreamFilter filter);
VDNN_TORCH_HOOK void vdnn_torch_end_allocate_to_pool(int device, vdnn::TorchPoolId id);
VDNN_TORCH_HOOK void vdnn_torch_release_pool(int device, vdnn::TorchPoolId id);
// The bytes of blocks in use. It replaces torch.cuda.memory_allocated(), which does not work with pluggable
// allocators.
VDNN_TORCH_HOOK std::uint64_t vdnn_torch_allocated_bytes(int device);
// The bytes of blocks in use, their peak since vdnn_torch_reset_peaks(), and the total bytes ever allocated
// and ever freed.
VDNN_TORCH_HOOK void vdnn_torch_allocated(int device, vdnn_allocator_figure* allocated);
VDNN_TORCH_HOOK void vdnn_torch_reset_peaks(int device);
// The statistics of the GPU's default pool. They replace torch.cuda.memory_stats().
VDNN_TORCH_HOOK vdnn_status vdnn_torch_statistics(int device, vdnn_allocator_statistics* statistics);
// The reason of the calling thread's last failure.
VDNN_TORCH_HOOK const char* vdnn_torch_last_error();
