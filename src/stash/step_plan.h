#pragma once
// Which of a step's tensors leave the device, so that what is in use stays within a budget.
//
// The model. At event e of the learned step the caller's tensors take U(e) bytes with nothing away: the most
// since the event before, where the caller tells that. A tensor that leaves is away in stretches, which
// src/stash/absences.h has: up to its first read and, in a retained graph, between two passes. The fetches
// that run ahead of their reads take at most `ahead_bytes`, which are reserved from the first read on, since
// a forward pass fetches nothing. So at each event
//
//    U(e) + reserve(e) - (bytes of leaving tensors that are away at e)  <=  budget
//
// (where no tensor can be away, as before the first save of a step, the budget is not the plan's concern),
// and the plan is the set of tensors with the fewest bytes that satisfies it. Bytes are the cost because each
// byte is copied twice, whichever tensor it belongs to, and once more for each further pass. Times do not
// count: they vary from run to run, and a plan that depended on them would, too.
//
// The method. This is a covering problem of intervals with sizes, knapsack cover if all intervals share an
// event, so NP-hard. The largest demand of an event is a lower bound, and in training it is tight: intervals
// are nested around the end of the forward pass. A greedy cover is the start: the event with the largest
// demand, then the tensor that covers it with the least excess, the one that is away longest among equals,
// and in the end what has become redundant is taken out again. Branch and bound improves it, by the largest
// demand that is left, until nothing cheaper can exist or `kMostNodes` nodes have been visited; their number
// does not depend on time, so that a step has one plan. Steps of a few dozen tensors are solved exactly.
// Demands and candidates are in trees (src/stash/range_max.h, src/stash/open_candidates.h), so that a plan
// for n tensors takes about n log n: the search adds a constant number of nodes.
//
// Windows. Both windows cost memory: a source is there until its copy is released, and a target before it is
// read. Without a budget no more than the two largest tensors are on their way out, so that all can leave. A
// window that is wider than all tensors together changes nothing, and is as wide as they are. Where
// the budget cannot be kept with the windows, both are halved until it can, down to an eighth of the step's
// two largest tensors or of the window if that is less. Then no windows are tried: a source is released at
// once, and fetches run ahead only into memory that nothing else needs (src/stash/fetch_schedule.h). If the
// budget cannot be kept even so, all tensors leave that lessen a demand, and the peak of the plan tells what
// the step needs.
//
// Budgets and windows may be any number of 64 bits.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "src/stash/fetch_schedule.h"
#include "src/stash/host_block_size.h"
#include "src/stash/learned_step.h"

namespace vdnn::stash {

struct StepLimits {
  std::uint64_t budget_bytes = 0;  // 0: all that may leave leaves
  // The windows, at most.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
  std::uint64_t host_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct StepPlan {
  std::vector<bool> leaves;          // by tensor
  std::vector<ScheduledRead> reads;  // all of the step, in order
  // The windows that were planned with.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
  std::uint64_t leaving_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of what the caller's tensors take
  HostBlockCounts host_blocks;   // as of host_blocks_of()
  // The cost of planning: nodes of trees that were looked at. Of a step the number is the same in each run.
  std::uint64_t visits = 0;
};

inline constexpr std::uint64_t kMostNodes = 5'000;
inline constexpr std::uint64_t kNarrowestWindow =
    8;  // the part of it, or of the two largest tensors, that is tried before none

StepPlan plan_step(const StepRecord& step, const StepLimits& limits);
// Whether a step goes the same way by both, whatever it takes.
bool is_same_course(const StepPlan& a, const StepPlan& b);

// How many of the tensors that leave have a block of host memory at once, from save to drop. Where the host's
// budget is too small for all, those that are saved first have one.
HostBlockCounts host_blocks_of(const StepRecord& step, const std::vector<bool>& leaves,
                               std::uint64_t host_bytes);

}  // namespace vdnn::stash
