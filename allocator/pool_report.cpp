#include "allocator/pool_report.h"

#include <algorithm>
#include <mutex>

namespace vdnn {

MemoryShortage PoolReport::shortage(std::uint64_t asked) const {
  const std::uint64_t small = memory_.largest_free_block_bytes(BlockKind::kSmall);
  const std::uint64_t large = memory_.largest_free_block_bytes(BlockKind::kLarge);
  const std::uint64_t persistent = memory_.largest_free_block_bytes(BlockKind::kPersistent);
  const std::uint64_t in_use = handed_out(kBlockKinds).allocated.current;
  const std::uint64_t committed = memory_.reserved().current;
  // Free parts of slabs serve small requests only.
  const std::uint64_t would_have_fitted =
      std::max({memory_.budget_bytes() - committed + memory_.free_granule_bytes(),
                rounding_.largest_small_request(small), rounding_.largest_large_request(large)});
  return {.asked = asked,
          .in_use = in_use,
          .cached = committed - in_use,
          .largest_free_block = std::max({small, large, persistent}),
          .budget = memory_.budget_bytes(),
          .would_have_fitted = would_have_fitted};
}

StreamPoolStatistics PoolReport::statistics(const CallCounters& calls) const {
  StreamPoolStatistics all;
  for (const BlockKind each : kAllBlockKinds) {
    const auto kind = static_cast<std::size_t>(each);
    all.kinds.at(kind) = handed_out(kind);
    all.kinds.at(kind).active = blocks_.active(kind);
    all.kinds.at(kind).reserved = memory_.reserved(each);
  }
  all.all = handed_out(kBlockKinds);
  all.all.active = blocks_.active(kBlockKinds);
  all.all.reserved = memory_.reserved();
  all.reused_from_cache = order_.recycled_reused();
  order_.for_each([&](PoolStream& stream) {
    const std::lock_guard lock(stream.mutex);
    all.reused_from_cache += stream.reused_from_cache;
  });
  all.reused_at_once = blocks_.reused_at_once();
  all.reused_after_wait = blocks_.reused_after_wait();
  all.growths = memory_.growths();
  const OrderCounters& order = order_.counters();
  all.events_recorded = order.events_recorded;
  all.stream_waits = order.stream_waits;
  all.host_waits = order.host_waits;
  all.device_waits = order.device_waits;
  all.events_held = order.events_held;
  all.streams_tracked = order_.streams_tracked();
  all.streams_visited = order.streams_visited;
  all.retries = memory_.retries() + calls.exhausted;
  all.failures = calls.refused;
  all.freed_unordered = calls.freed_unordered;
  return all;
}

StreamPoolStatistics PoolReport::statistics_of(StreamHandle handle) const {
  StreamPoolStatistics of_stream;
  PoolStream* const stream = order_.known(handle);
  if (stream == nullptr) {
    return of_stream;
  }
  const std::lock_guard lock(stream->mutex);
  const auto figures = [&](std::size_t kind) {
    const StreamTally::Figures& counted = stream->tally.of(kind);
    return PoolFigures{.blocks = counted.blocks.figure(),
                       .requested = counted.requested.figure(),
                       .allocated = counted.allocated.figure()};
  };
  for (std::size_t kind = 0; kind < kBlockKinds; ++kind) {
    of_stream.kinds.at(kind) = figures(kind);
  }
  of_stream.all = figures(kBlockKinds);
  of_stream.reused_from_cache = stream->reused_from_cache;
  return of_stream;
}

void PoolReport::reset_peaks() {
  order_.for_each([&](PoolStream& stream) {
    const std::lock_guard lock(stream.mutex);
    stream.tally.settle(peaks_);
    stream.tally.reset_peaks();
  });
  for (BlockFigures<SumOfLeases>& each : peaks_) {
    each.blocks.reset_peak();
    each.requested.reset_peak();
    each.allocated.reset_peak();
  }
  memory_.reset_peaks();
  blocks_.reset_peaks();
}

std::vector<PoolPiece> PoolReport::pieces() const {
  std::vector<PoolPiece> pieces = memory_.pieces();
  for (PoolPiece& piece : pieces) {
    if (piece.state == PoolPiece::State::kInUse) {
      describe(piece);
    }
  }
  return pieces;
}

// Completes a piece: the bookkeeping of offsets does not distinguish blocks in use from cached ones.
void PoolReport::describe(PoolPiece& piece) const {
  const BlockRecord& record = *blocks_.find(piece.range.begin);
  const std::lock_guard lock(record.owner->mutex);
  const bool is_in_use = PoolBlocks::is_in_use(record);
  piece.stream_id = record.owner->id;
  piece.state = is_in_use ? PoolPiece::State::kInUse : PoolPiece::State::kCached;
  piece.requested_bytes = is_in_use ? record.requested : 0;
}

// The figures of one kind or, for kBlockKinds, of all kinds.
PoolFigures PoolReport::handed_out(std::size_t kind) const {
  PoolFigures sum;
  const auto add_tally = [&](const StreamTally& tally) {
    const auto add_figure = [](PoolFigure& to, const PoolFigure& figure) {
      to.current += figure.current;
      to.added += figure.added;
      to.removed += figure.removed;
    };
    add_figure(sum.blocks, tally.of(kind).blocks.figure());
    add_figure(sum.requested, tally.of(kind).requested.figure());
    add_figure(sum.allocated, tally.of(kind).allocated.figure());
  };
  add_tally(order_.recycled());
  order_.for_each([&](PoolStream& stream) {
    const std::lock_guard lock(stream.mutex);
    add_tally(stream.tally);
  });
  sum.blocks.peak = peaks_.at(kind).blocks.peak();
  sum.requested.peak = peaks_.at(kind).requested.peak();
  sum.allocated.peak = peaks_.at(kind).allocated.peak();
  return sum;
}

}  // namespace vdnn
