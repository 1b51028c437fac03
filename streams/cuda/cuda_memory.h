#pragma once
// Device memory by CUDA's virtual memory management: address space is reserved, granules are mapped into it
// as they are committed. Where a GPU has none, a reservation is memory in one piece, all of it taken at once,
// and commits are book-keeping.
//
// Physical memory is allocated in *pieces*. What is mapped as one allocation can only be unmapped as one, and
// only from its beginning on (cuMemMap, cuMemUnmap), so a piece goes back once all of it is decommitted. Each
// lies in one *tile* of its reservation, whose size is a 64th of its offset, rounded down to a power of two:
// a granule at least, 64 MiB at most. So 80 GiB that are committed at once take 1,600 pieces in place of
// 40,960. A decommit of a part of a piece leaves the piece mapped, which is at most a 64th of the memory
// below it; the next commit there uses it again. With granules of 2 MiB, the first 256 MiB of a reservation
// are exact.
//
// A piece's handle is released as soon as it is mapped, so that the mapping alone keeps the memory, and
// unmapping gives it back. A commit that fails unmaps what it has mapped. What CUDA refuses to unmap is kept
// like the rest of a piece.
//
// Work of other GPUs may touch virtual memory only where access was granted to each of them, mapping by
// mapping: that peers have been let into the GPU's other memory says nothing about it.

#include <cstdint>
#include <map>
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
  // Where CUDA refuses to unmap a piece, what lies before it is decommitted and the rest is not.
  void decommit(AddressRange range);

  bool committed(AddressRange range) const;

 private:
  // Address space for `bytes`, or memory.
  AddressRange take(std::uint64_t bytes);
  CudaStatus give_back(AddressRange reservation);
  void open_to(int peer);
  void map_all(AddressRange range);
  // The first piece that ends after `address`, or what is to become one, up to `end`.
  AddressRange next_piece(std::uint64_t address, std::uint64_t end) const;
  AddressRange tile_at(std::uint64_t address) const;
  void map(AddressRange piece, AddressRange committing);
  // Whether any of it is committed.
  bool is_used(AddressRange piece) const;
  std::vector<AddressRange> unused_pieces(AddressRange range) const;
  CudaStatus unmap(AddressRange piece) noexcept;
  MemoryShortage shortage_of(AddressRange committing) const;

  CudaContext& context_;
  const bool virtual_memory_;
  const CudaMemoryKind kind_;
  std::vector<int> users_;    // ordinals: its own GPU's, and the peers'
  mutable std::mutex mutex_;  // guards what follows
  AddressSpace space_;
  std::map<std::uint64_t, std::uint64_t> pieces_;  // that are mapped: bytes, by begin
};

}  // namespace vdnn
