#pragma once
// An upper bound of the peak of tensors on a GPU since the last call. It covers memory that operations need
// between two saves or reads, which counts against a budget, too.
//
// An allocator keeps its peak since the last reset, and only the program may reset it. So this bound adds all
// bytes allocated since the last call, as though nothing had been freed in between. About one operation runs
// between two events, and it frees its operands only when it has its result, so the bound is seldom far from
// the peak. The allocator's own peak limits the bound, too.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace vdnn::door {

// Bytes of tensors as counted by an allocator.
struct MemoryFigures {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;       // since the program last reset it
  std::uint64_t allocated = 0;  // in total, or since the program last reset it
};

class RecentPeak {
 public:
  // Starts a new stretch.
  void restart(const MemoryFigures& now) { last_ = now; }
  std::uint64_t take(const MemoryFigures& now) {
    const MemoryFigures before = last_.value_or(now);
    last_ = now;
    if (now.allocated < before.allocated) {
      return now.current;  // the program has reset the counters
    }
    // If the allocator does not count allocations, only both ends of the stretch are known.
    const std::uint64_t bound = std::max(before.current + (now.allocated - before.allocated), now.current);
    return now.peak < before.peak ? bound : std::min(bound, now.peak);
  }

 private:
  std::optional<MemoryFigures> last_;
};

}  // namespace vdnn::door
