#pragma once
// The blocks of a stream pool that are not free in the bookkeeping of offsets: handed out, or in the cache of
// a stream. Each has a record (allocator/block_table.h), found by its address.
//
// Any thread may *claim* a block in use: one of several threads that free the same address succeeds, without
// a lock. The claim ends when the block is freed, or when disclaim() gives it back.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "allocator/block_readers.h"
#include "allocator/block_table.h"
#include "allocator/pool_memory.h"
#include "allocator/pool_request.h"
#include "allocator/pool_stream.h"
#include "allocator/pool_tally.h"
#include "allocator/stream_order.h"

namespace vdnn {

class PoolBlocks {
 public:
  // `name` is the pool's name in errors. All arguments must outlive the blocks.
  PoolBlocks(const std::string& name, PoolMemory& memory, StreamOrder& order, PoolPeaks& peaks)
      : name_(name), memory_(memory), order_(order), peaks_(peaks) {}

  // --- from any thread, without a lock ---------------------------------------------------------------------
  static bool is_in_use(const BlockRecord& record) {
    return record.state() == BlockRecord::kInUse || record.state() == BlockRecord::kShared;
  }
  // The record of the last block that began at `address`; null if no block ever began there.
  BlockRecord* find(std::uint64_t address) const {
    return memory_.contains(address) ? memory_.table().find(memory_.offset_of(address)) : nullptr;
  }
  // Claims the block in use that begins at `address`; throws InvalidArgument if there is none. Afterwards,
  // only the caller may use the record.
  BlockRecord& claim(std::uint64_t address) {
    BlockRecord* const record = find(address);
    if (record == nullptr) {
      refuse(address);
    }
    const std::uint64_t offset = memory_.offset_of(address);
    if (!record->change(offset, BlockRecord::kInUse, BlockRecord::kBusy) && !claim_shared(*record, offset)) {
      refuse(address);
    }
    return *record;
  }
  // Ends a claim: the block is in use as before.
  static void disclaim(BlockRecord& record) {
    const bool has_readers = std::exchange(record.has_readers, false);
    record.become(has_readers ? BlockRecord::kShared : BlockRecord::kInUse);
  }

  // --- under the pool's lock -------------------------------------------------------------------------------
  // Allocates a block of `bytes` for `request` and orders `stream` after the block's earlier uses; empty if
  // there is no memory. If an event would have to cross the border of a capture, the block consists of new
  // memory. Throws what the backend throws, except OutOfMemory. `flush_caches`: see PoolMemory::allocate().
  std::optional<AddressRange> allocate(const PoolRequest& request, std::uint64_t bytes, PoolStream& stream,
                                       const std::function<bool()>& flush_caches);
  // Frees a claimed block; `last_use` must dominate every use of it. Changes nothing if it throws.
  void free(BlockRecord& record, const Frontier& last_use);
  // Likewise, for a cached block, which is not counted as handed out. Returns whether whole granules may have
  // become free.
  bool release(BlockRecord& record, const Frontier& last_use);

  // Notes that `reader` uses the block in use that begins at `address`; throws InvalidArgument if there is
  // none.
  void add_reader(std::uint64_t address, PoolStream& reader);
  // The last use of a claimed block that is freed now in the order of `stream`. If `stream` is null, all
  // uses of the block are done.
  Frontier last_use(const BlockRecord& record, PoolStream* stream);

  // Bytes that are handed out or cached: of one kind or, for kBlockKinds, of all kinds.
  const PoolFigure& active(std::size_t kind) const { return active_.at(kind); }
  void reset_peaks();
  // Requests served from free memory without a wait.
  std::uint64_t reused_at_once() const { return reused_at_once_; }
  // Requests served from free memory after a wait of the requester.
  std::uint64_t reused_after_wait() const { return reused_after_wait_; }

 private:
  [[noreturn]] void refuse(std::uint64_t address) const;
  static bool claim_shared(BlockRecord& record, std::uint64_t offset);
  BlockRecord& prepare_record(const PoolRequest& request, Tlsf::Block& block, PoolStream& stream);
  BlockRecord& prepare_record(BlockKind kind, const Tlsf::Block& block, PoolStream& stream);
  Frontier handed_out_after(const BlockRecord& record) const;

  const std::string& name_;
  PoolMemory& memory_;
  StreamOrder& order_;
  PoolPeaks& peaks_;
  BlockReaders readers_;
  std::deque<BlockRecord> records_;
  BlockRecord* spare_ = nullptr;  // records that represent no block, chained
  std::array<PoolFigure, kBlockKinds + 1> active_;
  std::uint64_t reused_at_once_ = 0;
  std::uint64_t reused_after_wait_ = 0;
};

}  // namespace vdnn
