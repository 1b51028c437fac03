#pragma once
// What the process's environment says to libvdnn_preload.so:
//
// * VDNN_PRELOAD_MEMORY=SIZE: what the pool of each GPU may have committed; default: all memory of the GPU.
// * VDNN_PRELOAD_FREE=ordered: cudaFree does not synchronise; default: synchronous. See docs/allocator.md.
// * VDNN_PRELOAD_IPC=1: what cudaMalloc gives can be shared with other processes: it bypasses the pool.
// * VDNN_PRELOAD_HOST_CACHE=SIZE: page-locked memory that is kept for the next cudaMallocHost or
//   cudaHostAlloc; 0: none; default: 256 MiB.
// * VDNN_PRELOAD_LIBRARIES=1: libraries that hold a runtime of their own are served, too; else not.
// * VDNN_PRELOAD_PEERS=0: other GPUs get no access to memory of a pool; default: those that can reach it do.
// * VDNN_PRELOAD_SUMMARY=1 or a file: at the end, to standard error or to the file.

#include <cstdint>
#include <string>

namespace vdnn::preload {

struct Settings {
  bool pooled = true;              // false: everything is the runtime's
  std::uint64_t memory_bytes = 0;  // 0: all of the GPU's
  bool ordered_free = false;
  bool ipc = false;
  bool libraries = false;
  bool peers = true;
  std::uint64_t host_cache_bytes = std::uint64_t{256} << 20;
  std::string summary;  // "": none; "1": standard error; a file
};

// Throws InvalidArgument where a value is none of these.
Settings read_settings();

}  // namespace vdnn::preload
