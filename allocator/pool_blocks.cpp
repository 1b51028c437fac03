#include "allocator/pool_blocks.h"

#include <mutex>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {

void PoolBlocks::refuse(std::uint64_t address) const {
  throw InvalidArgument(name_ + ": no block in use begins at address " + std::to_string(address) +
                        (memory_.contains(address) ? ", which is the pool's" : ", which is not the pool's"));
}

bool PoolBlocks::claim_shared(BlockRecord& record, std::uint64_t offset) {
  if (!record.change(offset, BlockRecord::kShared, BlockRecord::kBusy)) {
    return false;
  }
  record.has_readers = true;
  return true;
}

// --- allocation --------------------------------------------------------------------------------------------

std::optional<AddressRange> PoolBlocks::allocate(const PoolRequest& request, std::uint64_t bytes,
                                                 PoolStream& stream,
                                                 const std::function<bool()>& flush_caches) {
  const std::uint64_t growths = memory_.growths();
  std::optional<Tlsf::Block> block =
      memory_.allocate(request.kind, bytes, order_.knowledge(stream), flush_caches);
  if (!block) {
    return std::nullopt;
  }
  const std::uint64_t waits = order_.counters().stream_waits + order_.counters().host_waits;
  BlockRecord& record = prepare_record(request, *block, stream);
  if (memory_.growths() == growths) {
    const bool waited = order_.counters().stream_waits + order_.counters().host_waits != waits;
    ++(waited ? reused_after_wait_ : reused_at_once_);
  }
  record.owner = &stream;
  record.bytes = block->bytes;
  record.requested = request.bytes;
  record.size_class = record.kind == BlockKind::kSmall ? request.size_class : SizeClasses::kClasses;
  record.freed_count = 0;
  record.has_readers = false;
  record.tagged.store(BlockRecord::tag(block->offset, BlockRecord::kInUse), std::memory_order_release);
  memory_.table().set(block->offset, &record);
  add(active_[static_cast<std::size_t>(record.kind)], block->bytes);
  add(active_.back(), block->bytes);
  const std::lock_guard of_stream(stream.mutex);
  stream.tally.add(record.kind, request.bytes, block->bytes, peaks_);
  stream.tally.settle(peaks_);
  return memory_.at(block->offset, request.bytes);
}

// Returns a record for the block once `stream` is ordered after the block's last users; frees the block if
// it throws. If this order needs a wait from inside a capture for work outside it, or the reverse, replaces
// `block` by a large block of new memory.
BlockRecord& PoolBlocks::prepare_record(const PoolRequest& request, Tlsf::Block& block, PoolStream& stream) {
  try {
    return prepare_record(request.kind, block, stream);
  } catch (const CaptureConflict&) {
    const std::optional<Tlsf::Block> unused = memory_.allocate_unused(request.bytes);
    if (!unused) {
      throw;
    }
    block = *unused;
  }
  return prepare_record(BlockKind::kLarge, block, stream);
}

BlockRecord& PoolBlocks::prepare_record(BlockKind kind, const Tlsf::Block& block, PoolStream& stream) {
  try {
    memory_.table().prepare(block.offset);
    if (spare_ == nullptr) {
      spare_ = &records_.emplace_back();
    }
    order_.make_ready(stream, block.frontier);
  } catch (...) {
    memory_.free(kind, block.offset, block.bytes, {});
    throw;
  }
  BlockRecord& record = *std::exchange(spare_, spare_->next);
  record.kind = kind;
  return record;
}

// --- free --------------------------------------------------------------------------------------------------

void PoolBlocks::free(BlockRecord& record, const Frontier& last_use) {
  PoolStream& owner = *record.owner;
  const bool frees_granules = release(record, last_use);
  for (PoolStream* const reader : readers_.remove_all(record)) {
    order_.recycle(*reader);
  }
  {
    const std::lock_guard of_owner(owner.mutex);
    owner.tally.remove(record.kind, record.requested, record.bytes);
    owner.tally.settle(peaks_);
  }
  order_.recycle(owner);
  if (frees_granules) {
    memory_.prepare_to_shrink();
  }
}

bool PoolBlocks::release(BlockRecord& record, const Frontier& last_use) {
  const std::uint64_t offset = record.offset();
  const bool frees_granules = memory_.free(record.kind, offset, record.bytes, last_use);
  memory_.table().set(offset, nullptr);
  remove(active_[static_cast<std::size_t>(record.kind)], record.bytes);
  remove(active_.back(), record.bytes);
  record.become(BlockRecord::kFree);
  record.next = std::exchange(spare_, &record);
  return frees_granules;
}

void PoolBlocks::add_reader(std::uint64_t address, PoolStream& reader) {
  BlockRecord* const record = find(address);
  if (record == nullptr || !is_in_use(*record)) {
    refuse(address);
  }
  if (record->owner == &reader) {
    return;
  }
  readers_.add(*record, reader);
  record->change(record->offset(), BlockRecord::kInUse, BlockRecord::kShared);
}

Frontier PoolBlocks::last_use(const BlockRecord& record, PoolStream* stream) {
  if (stream == nullptr || stream == &order_.host()) {
    return order_.missing(order_.host(), handed_out_after(record));
  }
  Frontier last_use(order_.freed_on(*stream));
  if (stream != record.owner) {
    last_use.join(order_.missing(*stream, handed_out_after(record)));
  }
  if (record.has_readers) {
    for (PoolStream* const reader : readers_.of(record)) {
      last_use.join(order_.freed_on(*reader));
    }
  }
  return last_use;
}

// The frontier that the owner was ordered after when it got the block. If the owner has not used the block,
// a stream that frees the block is not necessarily ordered after that frontier.
Frontier PoolBlocks::handed_out_after(const BlockRecord& record) const {
  Frontier frontier = memory_.handed_out_after(record.kind, record.offset(), record.bytes);
  frontier.join(record.freed_at());
  return frontier;
}

void PoolBlocks::reset_peaks() {
  for (PoolFigure& figure : active_) {
    figure.peak = figure.current;
  }
}

}  // namespace vdnn
