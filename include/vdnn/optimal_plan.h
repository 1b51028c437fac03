#pragma once
// The policy `optimal`: for each feature map keep, offload or recompute, for each op an algorithm, for each
// copy when it starts, so that the step is as short as can be within the budgets. vDNN (Rhu et al., MICRO
// 2016) decides once for a network; SuperNeurons (Wang et al., PPoPP 2018), Capuchin (Peng et al., ASPLOS
// 2020), MONeT (Shah et al., ICLR 2021) and POFO (Beaumont et al., NeurIPS 2021) showed what deciding for
// each value brings, here for any tape and all three at once.
//
// The problem is NP-hard (it contains knapsack), so this is a search: for a row of memory sizes, which do not
// depend on the budget, and under a few limits of workspace, many recipes choose what leaves, each choice is
// laid out and timed by a model (src/plan/optimal/layout.h), and the best are improved value by value. Of all
// that is found the plan that the forecaster says is fastest is taken, so that what is promised is what the
// real executor does, and more memory never makes it slower: what fits in less is found again.
// lower_bound_seconds() says how far from the best any plan can be.

#include "vdnn/forecast.h"
#include "vdnn/plan.h"
#include "vdnn/plan_costs.h"

namespace vdnn {

// The addresses are planned with everything else: the schedule brings them.
struct PlannedSchedule {
  Plan plan;
  Schedule schedule;
  // The least peak of all plans that were found, committed bytes: no smaller budget will do.
  std::uint64_t smallest_peak_bytes = 0;
};

// Deterministic. Long tapes are searched on several threads, which have ended when this returns. `options`:
// the workspace limit and recorded or kept algorithms are obeyed, the preference is not asked for otherwise.
// No other policy that fits is faster. Where nothing fits, the plan that takes the least memory.
PlannedSchedule plan_optimal(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                             const PlanCosts& costs, const Forecaster& forecaster);

// No plan of this tape can have a shorter step in so much device memory. Seconds.
double lower_bound_seconds(const Tape& tape, const PlanCosts& costs, std::uint64_t device_bytes);

}  // namespace vdnn
