#pragma once
// Device memory by CUDA's virtual memory management: address space is reserved, granules are mapped into it
// as they are committed. Where a GPU has none, a reservation is memory in one piece, all of it taken at once,
// and commits are book-keeping.
//
// Each granule is an allocation of its own: what is mapped as one piece can only be unmapped as one, and
// commits and decommits need not match. The handle is released as soon as the granule is mapped, so that the
// mapping alone keeps the memory, and unmapping gives it back. A commit that fails unmaps what it has mapped;
// granules that CUDA refuses to unmap then are remembered, and unmapped before anything else becomes of them.
//
// Work of other GPUs may touch virtual memory only where access was granted to each of them, mapping by
// mapping: that peers have been let into the GPU's other memory says nothing about it.

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "streams/address_space.h"
#include "streams/cuda/cuda_context.h"

namespace vdnn {

// Thread-safe. Arguments are checked (InvalidArgument); budgets are the caller's.
class CudaMemory {
 public:
  // Of the GPU that `info` describes. All of it may be touched by work of the GPUs `peers`, too:
  // require_peers().
  CudaMemory(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
             std::span<const int> peers);
  // Gives everything back. No work may be in flight.
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  // Throws OutOfMemory where the GPU has no more. What throws has changed nothing.
  void commit(AddressRange range);
  // Where CUDA refuses to unmap a granule, those before it are decommitted and the rest is not.
  void decommit(AddressRange range);

  bool committed(AddressRange range) const;

 private:
  // Address space for `bytes`, or memory.
  AddressRange take(std::uint64_t bytes);
  CudaStatus give_back(AddressRange reservation);
  AddressRange granule_at(std::uint64_t address) const;
  void open_to(int peer);
  void map_all(AddressRange range);
  void map(AddressRange granule, AddressRange committing);
  // Whether CUDA has done so.
  bool unmap(AddressRange granule) noexcept;
  void unmap_all(AddressRange range) noexcept;
  // Likewise, of what a commit that fails has mapped. commit() has made room for what stays.
  void roll_back(AddressRange range) noexcept;
  // Granules of `range` that stayed mapped.
  void unmap_left(AddressRange range);
  MemoryShortage shortage_of(AddressRange committing) const;

  CudaContext& context_;
  const bool virtual_memory_;
  const CudaMemoryKind kind_;
  std::vector<int> users_;    // ordinals: its own GPU's, and the peers'
  mutable std::mutex mutex_;  // guards what follows
  AddressSpace space_;
  std::vector<AddressRange> left_;  // granules that stayed mapped, though they are not committed
};

}  // namespace vdnn
