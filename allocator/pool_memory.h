#pragma once
// The memory of a stream pool: its kinds of blocks, within one budget. All memory is the large region's,
// small and persistent blocks are cut of slabs of it.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "allocator/block_table.h"
#include "allocator/granule_stock.h"
#include "allocator/large_region.h"
#include "allocator/slab_region.h"
#include "allocator/stream_order.h"

namespace vdnn {

// Guarded by the pool's lock, but for contains(), offset_of(), at() and table().find().
class PoolMemory {
 public:
  // `options` and `order` must outlive it.
  PoolMemory(PoolBackend& backend, const StreamPoolOptions& options, StreamOrder& order);

  std::uint64_t budget_bytes() const { return stock_.budget_bytes(); }
  const PoolFigure& reserved() const { return stock_.reserved(); }
  const PoolFigure& reserved(BlockKind kind) const { return reserved_[static_cast<std::size_t>(kind)]; }

  bool contains(std::uint64_t address) const { return large_.contains(address); }
  std::uint64_t offset_of(std::uint64_t address) const { return large_.offset_of(address); }
  AddressRange at(std::uint64_t offset, std::uint64_t bytes) const { return large_.at(offset, bytes); }
  // Of the blocks of all kinds.
  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }

  // --- blocks ----------------------------------------------------------------------------------------------
  // Of their sizes.
  std::uint64_t unit() const { return unit_; }
  // A block for a requester that is ordered after `known`, of `bytes` (units) or more: of what is free; else
  // from what streams keep, where flush_caches() finds any; else of more memory, as far as budget and device
  // have it. Throws what the backend throws but for OutOfMemory.
  std::optional<Tlsf::Block> take(BlockKind kind, std::uint64_t bytes, const StreamKnowledge& known,
                                  const std::function<bool()>& flush_caches);
  // A large block of memory that nobody has used, where budget and device have as much.
  std::optional<Tlsf::Block> take_fresh(std::uint64_t bytes);
  // What its user was ordered after when it was given the block.
  Frontier handed_out_behind(BlockKind kind, std::uint64_t offset, std::uint64_t bytes) const;
  // `last_use` must dominate every use; empty where the block was not used. Whether whole granules may have
  // become free.
  bool free(BlockKind kind, std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use);
  std::uint64_t largest_free_block_bytes(BlockKind kind) const;
  // In order of address; what is in use says no more than that.
  std::vector<PoolPiece> pieces() const;

  // --- memory ----------------------------------------------------------------------------------------------
  // Commits more until it is `bytes`; false where budget or device have not got as much.
  bool reserve(std::uint64_t bytes);
  // Gives back what is free in whole granules until at most `keep_bytes` are committed.
  void trim(std::uint64_t keep_bytes);
  // What is free in whole granules, but for slabs, and can be given back.
  std::uint64_t free_granule_bytes() const;
  // Above the high-water mark, gives back what is done by now. Before a block is freed, since what it is
  // merged with is done no sooner than the block.
  void sink_to_mark() noexcept;
  // After one was that left whole granules free: so that the next frees see when these are done.
  void mark_for_sinking() noexcept;

  // Instead of giving it back at the end: work may use it that cannot be waited for now.
  void leave_to_backend() noexcept { large_.leave_to_backend(); }

  void reset_peaks();
  std::uint64_t growths() const { return growths_; }
  // Requests for which all caches had to be emptied.
  std::uint64_t retries() const { return retries_; }

 private:
  using FreeGranules = LargeRegion::FreeGranules;

  // Of kinds but large ones.
  SlabRegion& slabs(BlockKind kind) { return kind == BlockKind::kSmall ? small_ : persistent_; }
  const SlabRegion& slabs(BlockKind kind) const { return kind == BlockKind::kSmall ? small_ : persistent_; }
  std::optional<Tlsf::Block> find(BlockKind kind, std::uint64_t bytes, const StreamKnowledge& known);
  bool grow(BlockKind kind, std::uint64_t bytes);
  bool reclaim();
  void give_back(std::uint64_t bytes, bool may_wait);
  bool wait_for(const Frontier& frontier);
  const FreeGranules* least_to_wait_for(const std::vector<FreeGranules>& all, std::uint64_t bytes);
  bool is_above_mark() const {
    return options_.high_water_bytes != 0 && reserved().current > options_.high_water_bytes &&
           large_.can_give_back();
  }
  void count_reserved() noexcept;
  // Whatever is thrown, figures are right at the end.
  struct Counted {
    explicit Counted(PoolMemory& memory_) : memory(memory_) {}
    ~Counted() { memory.count_reserved(); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    PoolMemory& memory;
  };

  const StreamPoolOptions& options_;
  StreamOrder& order_;
  const std::uint64_t unit_;
  const std::uint64_t slab_bytes_;
  GranuleStock stock_;
  LargeRegion large_;
  SlabRegion small_;
  SlabRegion persistent_;
  BlockTable table_;
  std::array<PoolFigure, kBlockKinds> reserved_;
  bool marked_ = false;  // some of what is free has been above the high-water mark
  std::uint64_t growths_ = 0;
  std::uint64_t retries_ = 0;
};

}  // namespace vdnn
