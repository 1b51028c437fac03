#pragma once
// The memory of a stream pool: its kinds of blocks, within one budget. All memory belongs to the large
// region; small and persistent blocks are cut from slabs, which are blocks of the large region.

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

// Guarded by the pool's lock, except for contains(), offset_of(), at() and table().find().
class PoolMemory {
 public:
  // `options` and `order` must outlive this object.
  PoolMemory(PoolBackend& backend, const StreamPoolOptions& options, StreamOrder& order);

  std::uint64_t budget_bytes() const { return stock_.budget_bytes(); }
  const PoolFigure& reserved() const { return stock_.reserved(); }
  const PoolFigure& reserved(BlockKind kind) const { return reserved_[static_cast<std::size_t>(kind)]; }

  bool contains(std::uint64_t address) const { return large_.contains(address); }
  std::uint64_t offset_of(std::uint64_t address) const { return large_.offset_of(address); }
  AddressRange at(std::uint64_t offset, std::uint64_t bytes) const { return large_.at(offset, bytes); }
  // The records of blocks of all kinds.
  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }

  // --- blocks ----------------------------------------------------------------------------------------------
  // Allocates a block of `bytes` (a multiple of the alignment) for a requester that is ordered after
  // `known`. Uses free memory first, then new memory within the budget and the device's memory.
  // flush_caches() frees the blocks in the caches of streams and returns whether there were any. It is called
  // before memory grows for a small block; for other kinds, only if no new memory is available. Throws what
  // the backend throws, except OutOfMemory.
  std::optional<Tlsf::Block> allocate(BlockKind kind, std::uint64_t bytes, const StreamKnowledge& known,
                                      const std::function<bool()>& flush_caches);
  // Allocates a large block of new memory, which nothing has used; empty if the budget or the device lacks
  // the memory.
  std::optional<Tlsf::Block> allocate_unused(std::uint64_t bytes);
  // The frontier that the user of the block was ordered after when it got the block.
  Frontier handed_out_after(BlockKind kind, std::uint64_t offset, std::uint64_t bytes) const;
  // Frees a block. `last_use` must dominate every use of the block; leave it empty if the block was not
  // used. Returns whether whole granules may have become free.
  bool free(BlockKind kind, std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use);
  std::uint64_t largest_free_block_bytes(BlockKind kind) const;
  // The pieces in order of address. Cached blocks are reported as in use, and requested sizes and streams
  // are not filled in.
  std::vector<PoolPiece> pieces() const;

  // --- memory ----------------------------------------------------------------------------------------------
  // Commits memory until `bytes` are committed; false if the budget or the device lacks the memory.
  bool reserve(std::uint64_t bytes);
  // Gives back wholly free granules until at most `keep_bytes` are committed. The host waits for work on
  // them.
  void trim(std::uint64_t keep_bytes);
  // Granules outside slabs that are wholly free and can be given back.
  std::uint64_t free_granule_bytes() const;
  // Above the high-water mark, gives back free granules whose work is done by now. Call it before a block is
  // freed: once the block is merged with free memory, that memory has to wait for the work on the block, too.
  void shrink_to_high_water() noexcept;
  // Call it after a free that left whole granules free. Records events so that shrink_to_high_water() can
  // detect when the work on these granules is done.
  void prepare_to_shrink() noexcept;

  // Makes the destructor leave the memory to the backend. Call it if work that the pool cannot wait for may
  // still use the memory.
  void leave_to_backend() noexcept { large_.leave_to_backend(); }

  void reset_peaks();
  std::uint64_t growths() const { return growths_; }
  // Requests for which all caches were flushed because no new memory was available.
  std::uint64_t retries() const { return retries_; }

 private:
  using FreeGranules = LargeRegion::FreeGranules;

  // The slabs of small or persistent blocks.
  SlabRegion& slabs(BlockKind kind) { return kind == BlockKind::kSmall ? small_ : persistent_; }
  const SlabRegion& slabs(BlockKind kind) const { return kind == BlockKind::kSmall ? small_ : persistent_; }
  std::optional<Tlsf::Block> reuse(BlockKind kind, std::uint64_t bytes, const StreamKnowledge& known);
  bool grow(BlockKind kind, std::uint64_t bytes);
  bool reclaim();
  void give_back(std::uint64_t bytes, bool may_wait);
  bool wait_for(const Frontier& frontier);
  const FreeGranules* least_to_wait_for(const std::vector<FreeGranules>& all, std::uint64_t bytes);
  bool is_above_high_water() const {
    return options_.high_water_bytes != 0 && reserved().current > options_.high_water_bytes &&
           large_.can_give_back();
  }
  void count_reserved() noexcept;
  // Updates the figures at the end of a scope, even if an exception ends it.
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
  bool was_above_high_water_ = false;  // at any call of prepare_to_shrink() so far
  std::uint64_t growths_ = 0;
  std::uint64_t retries_ = 0;
};

}  // namespace vdnn
