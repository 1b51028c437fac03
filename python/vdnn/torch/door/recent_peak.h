#pragma once
// An upper bound of the peak of tensor bytes on a GPU since the last call. It includes memory that operations
// need between two saves or reads, since that memory also counts against a budget.
//
// An allocator reports its peak since the last reset, and only the program may reset it. So this bound adds
// all bytes allocated since the last call, as if nothing had been freed in between. Between two events, about
// one operation runs. An operation frees its operands only when it has its result, so the bound is seldom far
// above the peak. The bound exceeds the allocator's own peak only if the program has reset that peak in the
// meantime.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace vdnn::door {

// Bytes of tensors as an allocator counts them.
struct MemoryFigures {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;       // since the program last reset it
  std::uint64_t allocated = 0;  // in total, or since the program last reset it
};

class RecentPeak {
 public:
  // Begins a new interval.
  void restart(const MemoryFigures& now) { last_ = now; }
  std::uint64_t take(const MemoryFigures& now) {
    const MemoryFigures before = last_.value_or(now);
    last_ = now;
    if (now.allocated < before.allocated) {
      return now.current;  // the program has reset the counters
    }
    // If the allocator does not count allocations, only the bytes at both ends of the interval are known.
    const std::uint64_t bound = std::max(before.current + (now.allocated - before.allocated), now.current);
    return now.peak < before.peak ? bound : std::min(bound, now.peak);
  }

 private:
  std::optional<MemoryFigures> last_;
};

}  // namespace vdnn::door
