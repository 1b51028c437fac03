#pragma once
// The settings of libvdnn_preload.so, read from variables of the environment:
//
// * VDNN_PRELOAD_MEMORY=SIZE: budget of the pool of each GPU; default: all memory of the GPU.
// * VDNN_PRELOAD_FREE=ordered: cudaFree does not synchronise; default: synchronous. See docs/allocator.md.
// * VDNN_PRELOAD_IPC=1: memory of cudaMalloc can be shared with other processes, since it bypasses the pool.
// * VDNN_PRELOAD_HOST_CACHE=SIZE: limit of the freed page-locked memory that is kept for the next
//   cudaMallocHost or cudaHostAlloc; 0: none is kept; default: 256 MiB.
// * VDNN_PRELOAD_LIBRARIES=1: libraries with a runtime linked in are served, too; default: they are not.
// * VDNN_PRELOAD_PEERS=0: other GPUs cannot access the memory of a pool; default: GPUs that are peers can.
// * VDNN_PRELOAD_SUMMARY=1 or a file: writes a summary at the end, to standard error or to the file.

#include <cstdint>
#include <string>

namespace vdnn::preload {

struct Settings {
  bool pooled = true;              // false: no pools; all requests are passed on to CUDA
  std::uint64_t memory_bytes = 0;  // 0: all memory of the GPU
  bool ordered_free = false;
  bool ipc = false;
  bool libraries = false;
  bool peers = true;
  std::uint64_t host_cache_bytes = std::uint64_t{256} << 20;
  std::string summary;  // "": none; "1": standard error; a file
};

// Throws InvalidArgument if a variable has a value that is not listed above.
Settings read_settings();

}  // namespace vdnn::preload
