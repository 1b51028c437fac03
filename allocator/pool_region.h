#pragma once
// The addresses of one kind of blocks: a range that is larger than any budget, of which granules have memory
// where blocks need them.

#include <cstdint>
#include <deque>
#include <optional>

#include "allocator/block_table.h"
#include "allocator/tlsf.h"
#include "vdnn/pool_backend.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Guarded by the pool's lock, but for contains(), offset_of() and table().find().
class PoolRegion {
 public:
  // `unit`: of the sizes of blocks. `reserved_of_all` counts what all regions have committed.
  PoolRegion(PoolBackend& backend, BlockKind kind, std::uint64_t budget, std::uint64_t unit,
             PoolFigure& reserved_of_all);
  // Gives everything back; no work may be in flight.
  ~PoolRegion();
  PoolRegion(const PoolRegion&) = delete;
  PoolRegion& operator=(const PoolRegion&) = delete;

  BlockKind kind() const { return kind_; }
  std::uint64_t unit() const { return unit_; }
  bool contains(std::uint64_t address) const { return address - range_.begin < range_.bytes; }
  std::uint64_t offset_of(std::uint64_t address) const { return address - range_.begin; }
  AddressRange at(std::uint64_t offset, std::uint64_t bytes) const {
    return {.begin = range_.begin + offset, .bytes = bytes};
  }
  Tlsf& blocks() { return blocks_; }
  const Tlsf& blocks() const { return blocks_; }
  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }

  // A hole gets memory. Throws what the backend throws, and then nothing changes.
  void commit(Tlsf::Extent hole);
  // A part of a free block loses its, from the end; what the backend throws in the middle leaves the rest.
  void decommit(Tlsf::Index block, Tlsf::Extent extent);

  // Of this kind.
  PoolFigure active;
  PoolFigure reserved;

 private:
  class Reservation {
   public:
    Reservation(PoolBackend& backend, std::uint64_t bytes)
        : backend_(backend), range(backend.reserve(bytes)) {}
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

   private:
    PoolBackend& backend_;

   public:
    const AddressRange range;
  };

  PoolBackend& backend_;
  const BlockKind kind_;
  const std::uint64_t unit_;
  const Reservation reservation_;
  const AddressRange range_;  // copied: every free reads it
  PoolFigure& reserved_of_all_;
  Tlsf blocks_;
  BlockTable table_;
};

}  // namespace vdnn
