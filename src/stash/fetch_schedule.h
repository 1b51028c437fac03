#pragma once
// Schedules when tensors that have left come back: as far ahead of their reads as the window and the budget
// allow.
//
// Fetches start in the order of the reads that need them. A fetch starts at a read earlier than its own, and
// uses memory from the event after that earlier read on. It starts at the earliest read that meets three
// conditions. The tensor is away after that read; the fetch fits into the window; and the bytes in use stay
// within the budget up to the tensor's own read. If no read meets these conditions, the fetch is late: it
// starts at the tensor's own read.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/stash/absences.h"
#include "src/stash/learned_step.h"

namespace vdnn::stash {

struct ScheduledRead {
  std::uint32_t tensor = 0;
  std::uint32_t earlier = 0;  // number of earlier reads of the same tensor
  // The number of reads of the step after which the fetch may start. If the fetch must not start ahead, the
  // number is one more than the number of reads before this one. For a tensor that does not leave, it is 0.
  std::size_t fetch_after = 0;

  friend bool operator==(const ScheduledRead&, const ScheduledRead&) = default;
};

struct FetchSchedule {
  std::vector<ScheduledRead> reads;  // all reads of the step, in order
  std::uint64_t peak_bytes = 0;      // the most bytes of the caller's tensors at an event
  std::uint64_t visits = 0;          // see RangeMax::visits()
};

// `leaving`: the absences of the tensors that leave. `budget_bytes` 0: only the window bounds fetches.
FetchSchedule schedule_fetches(const StepRecord& step, std::span<const Absence> leaving,
                               std::uint64_t ahead_bytes, std::uint64_t budget_bytes);

}  // namespace vdnn::stash
