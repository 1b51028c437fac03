#pragma once
// The functions of libvdnn_torch.so that PyTorch looks up by name:
//
//   allocator = torch.cuda.memory.CUDAPluggableAllocator(
//       "libvdnn_torch.so", "vdnn_torch_malloc", "vdnn_torch_free")
//   torch.cuda.memory.change_current_allocator(allocator)
//
// The others are optional; their addresses are passed to allocator.allocator().set_record_stream_fn() and so
// on. Their types are those of torch/csrc/cuda/CUDAPluggableAllocator.h; streams are cudaStream_t.
// torch_allocator.h describes each. The allocator lives as long as the process, since PyTorch frees while the
// process ends.

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
// Sets the budget in bytes, before the GPU's first block. PyTorch has no hook for it.
VDNN_TORCH_HOOK vdnn_status vdnn_torch_set_budget(std::uint64_t bytes, int device);
VDNN_TORCH_HOOK void* vdnn_torch_get_base_allocation(void* block, std::size_t* bytes);
VDNN_TORCH_HOOK void vdnn_torch_record_stream(void* block, void* stream);
VDNN_TORCH_HOOK void vdnn_torch_begin_allocate_to_pool(int device, vdnn::TorchPoolId id,
                                                       vdnn::TorchStreamFilter filter);
VDNN_TORCH_HOOK void vdnn_torch_end_allocate_to_pool(int device, vdnn::TorchPoolId id);
VDNN_TORCH_HOOK void vdnn_torch_release_pool(int device, vdnn::TorchPoolId id);
// The value of torch.cuda.memory_allocated(), which does not work with pluggable allocators.
VDNN_TORCH_HOOK std::uint64_t vdnn_torch_allocated_bytes(int device);
// The same bytes, their peak, and the bytes that were ever allocated and freed.
VDNN_TORCH_HOOK void vdnn_torch_allocated(int device, vdnn_allocator_figure* allocated);
// The figures of the GPU's default pool, in place of torch.cuda.memory_stats().
VDNN_TORCH_HOOK vdnn_status vdnn_torch_statistics(int device, vdnn_allocator_statistics* statistics);
// The reason why the last failed call of this thread failed.
VDNN_TORCH_HOOK const char* vdnn_torch_last_error();
