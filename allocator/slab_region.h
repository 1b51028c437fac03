#pragma once
// Small blocks of one kind, cut from slabs. A slab is a block of the large region. reclaim() gives wholly
// free slabs back to that region.

#include <cstdint>
#include <optional>
#include <set>

#include "allocator/large_region.h"
#include "allocator/sparse_tlsf.h"
#include "allocator/stream_order.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Guarded by the pool's lock. Offsets are those of the large region.
class SlabRegion {
 public:
  // Sizes of blocks are multiples of `unit`; no block is larger than a slab. `large` and `order` must
  // outlive this object.
  SlabRegion(LargeRegion& large, StreamOrder& order, std::uint64_t slab_bytes, std::uint64_t unit);

  // Like the functions of LargeRegion with the same names, but within the slabs: allocate() adds no slab, and
  // free() returns whether a whole slab may have become free.
  std::optional<Tlsf::Block> allocate(std::uint64_t bytes, const StreamKnowledge& known) {
    return blocks_.allocate(bytes, known);
  }
  Frontier handed_out_after(std::uint64_t offset, std::uint64_t bytes) const {
    return blocks_.in_use(offset, bytes).frontier;
  }
  bool free(std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use) {
    const StreamOrder::Covered covered(order_, last_use);
    return blocks_.free(offset, bytes, last_use, &covered).bytes >= slab_bytes_;
  }
  std::uint64_t largest_free_block_bytes() const { return blocks_.largest_free_block_bytes(); }

  // Adds a slab from the committed memory of the large region; false if that memory does not suffice. Costs
  // as much as LargeRegion::allocate(), and is linear in the vacancies between slabs.
  bool add_slab(const StreamKnowledge& known);
  // Gives wholly free slabs back to the large region. Returns whether there were any.
  bool reclaim();
  std::uint64_t bytes() const { return slabs_.size() * slab_bytes_; }
  bool is_slab(std::uint64_t offset) const { return slabs_.contains(offset); }
  // Calls visit(extent, state) for the blocks in slabs, in descending order of offset.
  template <class Visit>
  void for_each_piece(const Visit& visit) const {
    blocks_.for_each_from_the_end([&](Tlsf::Extent extent, Tlsf::State state) {
      if (state != Tlsf::State::kVacant) {
        visit(extent, state);
      }
    });
  }

 private:
  // Calls visit(block, slab, frontier) for each slab that is free.
  template <class Visit>
  void for_each_free_slab(const Visit& visit) const;

  LargeRegion& large_;
  StreamOrder& order_;
  const std::uint64_t slab_bytes_;
  SparseTlsf blocks_;
  std::set<std::uint64_t> slabs_;  // their offsets
};

}  // namespace vdnn
