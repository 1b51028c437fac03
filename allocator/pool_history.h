#pragma once
// The latest events of a pool in a ring, each with the stack of its call if that is requested.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "vdnn/stream_pool.h"

namespace vdnn {

// Thread-safe.
class PoolHistory {
 public:
  // Keeps `events` events (at least 1), with the stack of each if `stacks`. Only the constructor uses the
  // heap.
  PoolHistory(std::size_t events, bool stacks);

  void add(PoolEvent::Kind kind, AddressRange range, std::uint64_t stream_id) noexcept;
  // In order, the oldest first.
  std::vector<PoolEvent> events() const;

 private:
  static constexpr std::size_t kMaxFrames = 24;
  struct Entry {
    PoolEvent::Kind kind = PoolEvent::Kind::kAllocated;
    AddressRange range;
    std::uint64_t stream_id = 0;
    std::uint64_t microseconds = 0;
    std::array<void*, kMaxFrames> frames{};
    int frame_count = 0;
  };

  const bool stacks_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Entry> ring_;
  std::uint64_t added_ = 0;
};

}  // namespace vdnn
