#pragma once
// Device memory by CUDA's virtual memory management: address space is reserved, and commits map granules into
// it. On a GPU without this feature, a reservation is memory in one piece, allocated at once, and commits are
// bookkeeping.
//
// Physical memory is allocated in *pieces*. An allocation that was mapped as a whole can only be unmapped as
// a whole (cuMemMap, cuMemUnmap), so a piece goes back once all of it is decommitted. Each piece lies in one
// *tile* of its reservation. The size of a tile is a 64th of its offset, rounded down to a power of two: at
// least a granule, at most 64 MiB. So 80 GiB that are committed at once need 1,600 pieces instead of 40,960.
// If a part of a piece is decommitted, the piece stays mapped, which is at most a 64th of the memory below
// it; the next commit there uses it again. With granules of 2 MiB, the first 256 MiB of a reservation are
// exact.
//
// A piece's handle is released as soon as it is mapped, so that only the mapping keeps the memory, and
// unmapping releases it. A commit that fails unmaps the pieces that it has mapped. Pieces that CUDA refuses
// to unmap are kept like the rest of a partly decommitted piece.
//
// Work of other GPUs may access virtual memory only if access was granted to each of them, mapping by
// mapping: cudaDeviceEnablePeerAccess() does not cover it.

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
  // Throws OutOfMemory if the GPU has no more memory. A call that throws has changed nothing.
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
  // The first piece that ends after `address`, or the extent of a new one, up to `end`.
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
