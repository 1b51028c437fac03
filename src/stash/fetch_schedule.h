#pragma once
// When tensors that have left come back: ahead of their reads as far as the window goes, but not into memory
// that the budget does not have.
//
// Fetches start in the order of the reads, each within an earlier read. A fetch takes memory from the event
// after that read on. It starts at the earliest read from which on its tensor is away, it fits into the
// window, and no event up to its own read would exceed the budget by it. Where no earlier read is so, it is
// late.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/stash/absences.h"
#include "src/stash/learned_step.h"

namespace vdnn::stash {

struct ScheduledRead {
  std::uint32_t tensor = 0;
  std::uint32_t earlier = 0;  // reads of the same tensor
  // How many reads of the step there have been when its fetch may start: one more than come before its own
  // where it must not start ahead; 0 for a tensor that does not leave.
  std::size_t fetch_after = 0;

  friend bool operator==(const ScheduledRead&, const ScheduledRead&) = default;
};

struct FetchSchedule {
  std::vector<ScheduledRead> reads;  // all of the step, in order
  std::uint64_t peak_bytes = 0;      // what the caller's tensors take at the worst event
  std::uint64_t visits = 0;          // as of RangeMax
};

// `leaving`: the absences of the tensors that leave. `budget_bytes` 0: only the window bounds fetches.
FetchSchedule schedule_fetches(const StepRecord& step, std::span<const Absence> leaving,
                               std::uint64_t ahead_bytes, std::uint64_t budget_bytes);

}  // namespace vdnn::stash
