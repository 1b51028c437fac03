#pragma once
// Device memory with CUDA's virtual memory management: reservations are address space, into which commits
// map granules. On a GPU without this feature, a reservation allocates all its memory in one piece, and
// commits are bookkeeping.
//
// Physical memory is allocated in *pieces*. An allocation that was mapped as a whole can only be unmapped as
// a whole (cuMemMap, cuMemUnmap), so a piece is released once all of it is decommitted. Each piece lies in
// one *tile* of its reservation. The size of a tile is a 64th of its offset, rounded down to a power of two:
// at least a granule, at most 64 MiB. So 80 GiB that are committed by one call need 1,600 pieces instead of
// 40,960. A piece that is decommitted in part stays mapped, and the next commit of this part reuses the
// memory. Such a piece is at most a 64th of the memory at lower addresses of the reservation. With granules
// of 2 MiB, each tile in the first 256 MiB of a reservation is one granule, so that no decommitted memory
// stays mapped there.
//
// A piece's handle is released as soon as the piece is mapped, so that only the mapping keeps the memory,
// and unmapping releases it. A commit that fails unmaps the pieces that it has mapped. Pieces that CUDA
// refuses to unmap stay mapped, like a partly decommitted piece.
//
// Work of other GPUs may access virtual memory only if each mapping grants them access:
// cudaDeviceEnablePeerAccess() does not cover virtual memory.

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "streams/address_space.h"
#include "streams/cuda/cuda_context.h"

namespace vdnn {

// Thread-safe. Checks arguments (InvalidArgument); the caller enforces budgets.
class CudaMemory {
 public:
  // Memory of the GPU that `info` describes. Work of the GPUs `peers` may access all of it, too; check them
  // with require_peers() first.
  CudaMemory(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
             std::span<const int> peers);
  // Gives all memory and reservations back. No work may be in flight.
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  // Throws OutOfMemory if the GPU has no more memory. A call that throws has changed nothing.
  void commit(AddressRange range);
  // If CUDA refuses to unmap a piece, the memory at lower addresses has been decommitted, and the rest of
  // `range` stays committed.
  void decommit(AddressRange range);

  bool committed(AddressRange range) const;

 private:
  // Reserves address space for `bytes`; without virtual memory management, allocates memory.
  AddressRange take(std::uint64_t bytes);
  CudaStatus give_back(AddressRange reservation);
  void open_to(int peer);
  void map_all(AddressRange range);
  // The mapped piece that contains `address`; if there is none, the range of a new piece that begins at
  // `address` and ends at most at `end`.
  AddressRange next_piece(std::uint64_t address, std::uint64_t end) const;
  AddressRange tile_at(std::uint64_t address) const;
  void map(AddressRange piece, AddressRange committing);
  // Whether any part of `piece` is committed.
  bool is_used(AddressRange piece) const;
  std::vector<AddressRange> unused_pieces(AddressRange range) const;
  CudaStatus unmap(AddressRange piece) noexcept;
  MemoryShortage shortage_of(AddressRange committing) const;

  CudaContext& context_;
  const bool virtual_memory_;
  const CudaMemoryKind kind_;
  std::vector<int> users_;    // ordinals: the GPU's own, and the peers'
  mutable std::mutex mutex_;  // guards the members below
  AddressSpace space_;
  std::map<std::uint64_t, std::uint64_t> pieces_;  // the bytes of mapped pieces, by begin
};

}  // namespace vdnn
