#pragma once
// The policy `optimal` makes the step as short as it can within the budgets. It decides for each feature map
// whether to keep, offload or recompute it, and chooses an algorithm for each op and a start for each copy.
// vDNN (Rhu et al., MICRO 2016) decides once for a network. SuperNeurons (Wang et al., PPoPP 2018), Capuchin
// (Peng et al., ASPLOS 2020), MONeT (Shah et al., ICLR 2021) and POFO (Beaumont et al., NeurIPS 2021) showed
// the gain of deciding for each value. This policy does so for any tape, with all three kinds of decisions
// together.
//
// The problem is NP-hard (it contains knapsack), so this is a search. It tries a series of memory sizes,
// which do not depend on the budget, each with a few workspace limits. For each combination, many recipes
// choose the values that leave. A model lays out and times each choice (src/plan/optimal/step_model.h), and
// the best are improved value by value. The result is the plan with the shortest forecast step; the
// forecaster runs the real executor. The plans for less memory are found again, so more memory rarely makes
// the result slower: addresses, the last changes to the fastest plan and, for large tapes, the choice of
// plans that are improved depend on the budget. The largest slowdown that was found is 1 %.
//
// lower_bound_seconds() bounds the distance to the best possible plan.

#include "vdnn/forecast.h"
#include "vdnn/plan.h"
#include "vdnn/plan_costs.h"

namespace vdnn {

// A plan and its schedule, which has addresses if the policy plans them.
struct PlannedSchedule {
  Plan plan;
  Schedule schedule;
  // The least peak of all plans that the search found, in committed bytes: the smallest budget for this
  // policy.
  std::uint64_t smallest_peak_bytes = 0;
};

// Returns a plan that is at least as fast as any other policy's that fits. If nothing fits, returns the plan
// that needs the least memory. Of `options`, it obeys the workspace limit and recorded or kept algorithms;
// the preference matters only for kept ones. Deterministic. Long tapes are searched on several threads, which
// end before the function returns.
PlannedSchedule plan_optimal(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                             const PlanCosts& costs, const Forecaster& forecaster);

// A lower bound on the time of a step, in seconds, for any plan of this tape in that much device memory.
double lower_bound_seconds(const Tape& tape, const PlanCosts& costs, std::uint64_t device_bytes);

}  // namespace vdnn
