#pragma once
// The caches of all streams of a pool: small blocks that were freed in the order of the stream that they were
// allocated for, to be handed out to the same stream again. Each cache is guarded by the lock of its stream,
// so threads on different streams do not contend. A call needs a constant number of steps.
//
// A block in a cache stays allocated in the bookkeeping of offsets. It returns to the free blocks, together
// with the point of the stream at which it was freed, when the cache is full or is flushed.

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "allocator/block_table.h"
#include "allocator/pool_blocks.h"
#include "allocator/pool_memory.h"
#include "allocator/pool_request.h"
#include "allocator/pool_stream.h"
#include "allocator/pool_tally.h"
#include "allocator/stream_order.h"

namespace vdnn {

class StreamCaches {
 public:
  // `limit_bytes` limits the cache of one stream. All arguments must outlive the caches.
  StreamCaches(std::uint64_t limit_bytes, StreamOrder& order, PoolMemory& memory, PoolBlocks& blocks,
               PoolPeaks& peaks)
      : limit_bytes_(limit_bytes), order_(order), memory_(memory), blocks_(blocks), peaks_(peaks) {}

  // --- from any thread -------------------------------------------------------------------------------------
  // Hands out a block from the cache of `stream`. Empty if there is none for the request, or if
  // `is_still()`, called under the stream's lock, finds that `stream` now represents another stream.
  template <class IsStill>
  std::optional<AddressRange> take(const PoolRequest& request, PoolStream& stream, const IsStill& is_still) {
    if (request.kind != BlockKind::kSmall) {
      return std::nullopt;
    }
    AddressRange range;
    {
      const std::lock_guard lock(stream.mutex);
      BlockRecord* const record = is_still() ? stream.cache.pop(request.size_class) : nullptr;
      if (record == nullptr) {
        return std::nullopt;
      }
      record->requested = request.bytes;
      stream.tally.add(BlockKind::kSmall, request.bytes, record->bytes, peaks_);
      stream.used = true;
      ++stream.reused_from_cache;
      range = memory_.at(record->offset(), request.bytes);
      record->become(BlockRecord::kInUse);
    }
    return range;
  }
  // Puts a claimed block into the cache of its owner, which ends the claim. If the cache does not accept the
  // block, returns false, and the block stays claimed. Blocks that were evicted to make space are chained to
  // `evicted` (null at first). Pass them to release().
  bool put(BlockRecord& record, BlockRecord*& evicted) {
    PoolStream& owner = *record.owner;
    const bool is_cacheable = record.size_class < SizeClasses::kClasses && record.bytes <= limit_bytes_;
    if (!is_cacheable || record.has_readers || owner.of_thread) {
      return false;
    }
    const std::lock_guard lock(owner.mutex);
    if (!owner.keeps_cache || !make_room(owner, record, evicted)) {
      return false;
    }
    const Point freed_at = owner.next_point();
    record.freed_number = freed_at.stream;
    record.freed_count = freed_at.count;
    owner.used = true;
    order_.note_freed(owner);
    order_.note_cached(owner);
    owner.tally.remove(BlockKind::kSmall, record.requested, record.bytes);
    record.become(BlockRecord::kCached);
    owner.cache.push(record);
    return true;
  }

  // --- under the pool's lock -------------------------------------------------------------------------------
  // Frees the blocks that put() has evicted. Caches a block again if there is no memory to free it.
  void release(BlockRecord* evicted);
  // Frees all blocks in the cache of one stream, or in all caches. Returns whether there were any. If it
  // throws, the remaining blocks are still cached.
  bool flush(PoolStream& stream);
  bool flush_all();

 private:
  // Keeps put() at a constant number of steps.
  static constexpr int kMaxEvictions = 8;

  // The caller holds the owner's lock. False: the block does not fit into the cache.
  bool make_room(PoolStream& owner, const BlockRecord& record, BlockRecord*& evicted) {
    const std::uint64_t limit = limit_bytes_ - record.bytes;
    for (int i = 0; owner.cache.bytes() > limit; ++i) {
      BlockRecord* const other = i < kMaxEvictions ? owner.cache.pop_any(record.size_class) : nullptr;
      if (other == nullptr) {
        return false;
      }
      other->next = std::exchange(evicted, other);
      owner.tally.settle(peaks_);
    }
    return true;
  }

  const std::uint64_t limit_bytes_;
  StreamOrder& order_;
  PoolMemory& memory_;
  PoolBlocks& blocks_;
  PoolPeaks& peaks_;
};

}  // namespace vdnn
