#include "allocator/pool_history.h"

#include <execinfo.h>

#include <algorithm>
#include <chrono>

namespace vdnn {

PoolHistory::PoolHistory(std::size_t events, bool stacks) : stacks_(stacks), ring_(events) {
  if (stacks) {
    // The first call loads a library, which needs memory.
    std::array<void*, 1> none{};
    backtrace(none.data(), static_cast<int>(none.size()));
  }
}

void PoolHistory::add(PoolEvent::Kind kind, AddressRange range, std::uint64_t stream_id) noexcept {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  Entry entry{.kind = kind, .range = range, .stream_id = stream_id};
  if (stacks_) {
    entry.frame_count = backtrace(entry.frames.data(), static_cast<int>(entry.frames.size()));
  }
  const std::lock_guard lock(mutex_);
  entry.microseconds =
      static_cast<std::uint64_t>(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
  ring_[added_ % ring_.size()] = entry;
  ++added_;
}

std::vector<PoolEvent> PoolHistory::events() const {
  const std::lock_guard lock(mutex_);
  std::vector<PoolEvent> events;
  const std::uint64_t kept = std::min<std::uint64_t>(added_, ring_.size());
  events.reserve(kept);
  for (std::uint64_t i = added_ - kept; i < added_; ++i) {
    const Entry& entry = ring_[i % ring_.size()];
    // The first frame is add()'s.
    const int skipped = std::min(entry.frame_count, 1);
    events.push_back({.kind = entry.kind,
                      .range = entry.range,
                      .stream_id = entry.stream_id,
                      .microseconds = entry.microseconds,
                      .frames = {entry.frames.begin() + skipped, entry.frames.begin() + entry.frame_count}});
  }
  return events;
}

}  // namespace vdnn
