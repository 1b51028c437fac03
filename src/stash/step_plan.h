#pragma once
// Chooses which of a step's tensors leave the device, so that the bytes in use stay within a budget.
//
// The model. At event e of the learned step the caller's tensors use U(e) bytes if none is away; this is the
// peak since the previous event if the caller reports it. A tensor that leaves is away in stretches
// (src/stash/absences.h): up to its first read and, in a retained graph, between two passes. Tensors that are
// fetched ahead of their reads use at most `ahead_bytes`. This amount, reserve(e), is reserved from the first
// read on, since a forward pass fetches nothing. So at each event
//
//    U(e) + reserve(e) - (bytes of leaving tensors that are away at e)  <=  budget
//
// must hold. Events where no tensor can be away, for example before the first save, are excepted. The plan is
// the set of tensors with the fewest bytes that satisfies these inequalities. Bytes are the cost because each
// byte is copied twice, and once more for each further pass. Times are not part of the cost: they vary from
// run to run, and plans would vary with them.
//
// The method. This is a covering problem of intervals with sizes. It is NP-hard, since it is the knapsack
// cover problem if all intervals share an event. The largest demand of an event is a lower bound. In training
// the bound is tight, since intervals are nested around the end of the forward pass. The search starts with a
// greedy cover. The greedy cover repeatedly selects the event with the largest demand and the tensor that
// covers this demand with the least excess; among equally large tensors, the one that is away longest.
// Finally it removes redundant tensors. Branch and bound on the largest remaining demand then improves the
// cover until nothing cheaper can exist, or until it has visited `kMostNodes` nodes. This limit does not
// depend on time, so a step always has the same plan. Steps of a few dozen tensors are solved exactly. Trees
// store the demands and candidates (src/stash/range_max.h, src/stash/open_candidates.h). So planning n
// tensors costs about n log n operations; branch and bound adds a constant number of nodes.
//
// Windows. Both windows cost memory: a source stays until its copy is released, and a target exists before it
// is read. Without a budget, the flight window is at most the two largest tensors, so that all tensors can
// leave. A window that is wider than all tensors together is reduced to their size. If the budget cannot be
// kept with the windows, both are halved until it can be kept. They are halved down to an eighth of the
// step's two largest tensors, or of the original window if that is less. As a last resort the windows are 0.
// A source is then released at once, and fetches run ahead only into memory that nothing else needs
// (src/stash/fetch_schedule.h). If even windows of 0 exceed the budget, every tensor that reduces a positive
// demand leaves, and the plan's peak is the memory that the step needs.
//
// Budgets and windows may be any 64-bit numbers.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "src/stash/fetch_schedule.h"
#include "src/stash/host_block_size.h"
#include "src/stash/learned_step.h"

namespace vdnn::stash {

struct StepLimits {
  std::uint64_t budget_bytes = 0;  // 0: no limit is set, and every tensor leaves if it can
  // Upper limits of the windows.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
  std::uint64_t host_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct StepPlan {
  std::vector<bool> leaves;          // by tensor
  std::vector<ScheduledRead> reads;  // all reads of the step, in order
  // The windows of the plan.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
  std::uint64_t leaving_bytes = 0;
  std::uint64_t peak_bytes = 0;  // the most bytes of the caller's tensors
  HostBlockCounts host_blocks;   // see host_blocks_of()
  // The cost of planning: tree nodes visited. For a given step it is the same in each run.
  std::uint64_t visits = 0;
};

inline constexpr std::uint64_t kMostNodes = 5'000;
// Windows are narrowed at most to 1/kNarrowestWindow of the two largest tensors, or of the original window if
// that is less.
inline constexpr std::uint64_t kNarrowestWindow = 8;

StepPlan plan_step(const StepRecord& step, const StepLimits& limits);
// Whether both plans move the same tensors at the same reads with the same windows. Peaks and costs may
// differ.
bool is_same_course(const StepPlan& a, const StepPlan& b);

// The number of host blocks of each size that the leaving tensors use at once, each tensor from save to drop.
// If the host's budget is too small for all these tensors, those saved first get the blocks.
HostBlockCounts host_blocks_of(const StepRecord& step, const std::vector<bool>& leaves,
                               std::uint64_t host_bytes);

}  // namespace vdnn::stash
