#pragma once
// What a pool was asked lately: a ring of events, each with the stack that it was asked from, if wanted.

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
  // `events`: how many are kept, at least 1; all memory is taken here.
  PoolHistory(std::size_t events, bool stacks);

  void add(PoolEvent::Kind kind, AddressRange range, std::uint64_t stream_id) noexcept;
  // The oldest first.
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
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Entry> ring_;
  std::uint64_t added_ = 0;
};

}  // namespace vdnn
