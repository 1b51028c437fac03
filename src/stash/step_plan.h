#pragma once
// Chooses which of a step's tensors leave the device, so that the bytes in use stay within a budget.
//
// The model. At event e of the learned step the caller's tensors take U(e) bytes with nothing away: the most
// since the previous event, if the caller reports that. A tensor that leaves is away in stretches
// (src/stash/absences.h): up to its first read and, in a retained graph, between two passes. Fetches that run
// ahead of their reads take at most `ahead_bytes`. These are reserved from the first read on, since a forward
// pass fetches nothing. So at each event
//
//    U(e) + reserve(e) - (bytes of leaving tensors that are away at e)  <=  budget
//
// must hold, except at events where no tensor can be away, for example before the first save. The plan is the
// set of tensors with the fewest bytes that satisfies this. Bytes are the cost because each byte is copied
// twice, whichever tensor it belongs to, and once more for each further pass. Times do not count: they vary
// from run to run, and a plan that depended on them would, too.
//
// The method. This is a covering problem of intervals with sizes, knapsack cover if all intervals share an
// event, so NP-hard. The largest demand of an event is a lower bound. In training it is tight, since
// intervals are nested around the end of the forward pass. The search starts with a greedy cover. It takes
// the event with the largest demand, then the tensor that covers it with the least excess, among equals the
// one that is away longest. In the end it removes redundant tensors. Branch and bound on the largest
// remaining demand improves the cover until nothing cheaper can exist, or `kMostNodes` nodes have been
// visited. This number does not depend on time, so that a step has one plan. Steps of a few dozen tensors are
// solved exactly. Demands and candidates are in trees (src/stash/range_max.h, src/stash/open_candidates.h),
// so that a plan for n tensors takes about n log n steps; branch and bound adds a constant number of nodes.
//
// Windows. Both windows cost memory: a source stays until its copy is released, and a target exists before it
// is read. Without a budget no more than the two largest tensors are on their way out, so that all can leave.
// A window that is wider than all tensors together changes nothing, and is reduced to their size. If the
// budget cannot be kept with the windows, both are halved until it can. The least is an eighth of the step's
// two largest tensors, or of the window if that is less. As a last resort the windows are 0. A source is then
// released at once, and fetches run ahead only into memory that nothing else needs
// (src/stash/fetch_schedule.h). If the budget cannot be kept even so, all tensors leave that lessen a demand,
// and the plan's peak is the memory that the step needs.
//
// Budgets and windows may be any 64-bit number.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "src/stash/fetch_schedule.h"
#include "src/stash/host_block_size.h"
#include "src/stash/learned_step.h"

namespace vdnn::stash {

struct StepLimits {
  std::uint64_t budget_bytes = 0;  // 0: all tensors that can leave do
  // Upper limits of the windows.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
  std::uint64_t host_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct StepPlan {
  std::vector<bool> leaves;          // by tensor
  std::vector<ScheduledRead> reads;  // all of the step, in order
  // The windows of the plan.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
  std::uint64_t leaving_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of the caller's tensors
  HostBlockCounts host_blocks;   // see host_blocks_of()
  // The cost of planning: tree nodes visited. For a given step it is the same in each run.
  std::uint64_t visits = 0;
};

inline constexpr std::uint64_t kMostNodes = 5'000;
// Windows are narrowed to one part in this many of the two largest tensors, or of themselves if that is less.
inline constexpr std::uint64_t kNarrowestWindow = 8;

StepPlan plan_step(const StepRecord& step, const StepLimits& limits);
// Whether both plans move the same tensors at the same reads, whatever their figures.
bool is_same_course(const StepPlan& a, const StepPlan& b);

// The most blocks of host memory, by size, that the leaving tensors hold at once, each from save to drop. If
// the host's budget is too small for all, the tensors saved first have one.
HostBlockCounts host_blocks_of(const StepRecord& step, const std::vector<bool>& leaves,
                               std::uint64_t host_bytes);

}  // namespace vdnn::stash
