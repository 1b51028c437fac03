#pragma once
// The most that tensors took on a GPU since the last time that it was asked. An operation needs memory
// between two tensors that are saved or read, which a budget is about, too.
//
// An allocator keeps its peak since the program has reset it last, which is the program's to do. So this is
// an upper bound by what was allocated since: as though all of it had been before anything was freed. Between
// two events there is about one operation, which frees what it read when it has its result, so that the bound
// is seldom far from the peak. The allocator's own peak bounds it, too.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace vdnn::door {

// Bytes of tensors, as an allocator counts them.
struct MemoryFigures {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;       // since the program has reset it
  std::uint64_t allocated = 0;  // ever, or since the program has reset it
};

class RecentPeak {
 public:
  // Of what comes.
  void restart(const MemoryFigures& now) { last_ = now; }
  std::uint64_t take(const MemoryFigures& now) {
    const MemoryFigures before = last_.value_or(now);
    last_ = now;
    if (now.allocated < before.allocated) {
      return now.current;  // it was reset
    }
    // Where the allocator does not count what was allocated, both ends of the stretch are known.
    const std::uint64_t bound = std::max(before.current + (now.allocated - before.allocated), now.current);
    return now.peak < before.peak ? bound : std::min(bound, now.peak);
  }

 private:
  std::optional<MemoryFigures> last_;
};

}  // namespace vdnn::door
