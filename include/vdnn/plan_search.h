#pragma once
// Policies that ask what a plan would take before they settle on it. The static ones (plan.h) decide by the
// tape alone.
//
//   dyn   as the vDNN paper has it (Rhu et al., MICRO 2016, section III-C), its profiling passes being
//         forecasts. (1) `all` with memory-optimal algorithms must fit; where it does not, nothing does, and
//         that is the plan. (2) The first that fits of `none`, `conv` and `all` with performance-optimal
//         algorithms. (3) Else greedily, under `conv`, then under `all`: layer by layer, where the fastest
//         algorithm overflows the budget, the next, as far as the one with the least workspace. (4) Else
//         the plan of (1). Beyond the paper: an op that (3) or (4) leaves with an algorithm that takes more
//         than three times as long as its first choice has the first faster one that a forecast says fits.

#include "vdnn/forecast.h"
#include "vdnn/plan.h"
#include "vdnn/tape.h"

namespace vdnn {

// `options.preference` is looked at for `keep_algorithms` alone; `recorded` algorithms and the workspace
// limit are obeyed, so with recorded or kept ones there is nothing for (3) to choose. The plan's policy is
// kDynamic. It does not fit only where (1) does not. Deterministic, as the forecaster is; asks it for some
// twenty forecasts at most, and one for each faster algorithm that an op with so slow a one could have.
// Throws as make_plan().
Plan plan_dynamic(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                  const Forecaster& forecaster);

}  // namespace vdnn
