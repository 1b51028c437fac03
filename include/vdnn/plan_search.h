#pragma once
// Policies that forecast the memory and time of plans before they choose one. The static policies (plan.h)
// decide by the tape alone.
//
// `dyn` follows the vDNN paper (Rhu et al., MICRO 2016, section III-C), with forecasts for its profiling
// passes:
//
//   1. `all` with memory-optimal algorithms must fit. If it does not, nothing fits, and this is the plan.
//   2. The first of `none`, `conv` and `all` that fits with performance-optimal algorithms is the plan.
//   3. Otherwise algorithms are chosen greedily under `conv`, then under `all`: each layer in turn gets the
//      fastest algorithm with which the plan fits, or else the one with the least workspace.
//   4. If neither choice fits, the plan of (1) is used.
//
// Beyond the paper: (3) or (4) may leave an op with an algorithm that takes more than three times as long as
// its first choice. Such an op gets the first faster algorithm that a forecast shows to fit.

#include "vdnn/forecast.h"
#include "vdnn/plan.h"
#include "vdnn/tape.h"

namespace vdnn {

// The plan's policy is kDynamic. It fits unless the plan of (1) does not. `options.preference` matters only
// with `keep_algorithms`. Recorded algorithms and the workspace limit are obeyed; with recorded or kept
// algorithms step (3) has no choice. Deterministic if the forecaster is. It asks for about twenty forecasts
// at most, and one more for each faster algorithm that it tries for a slow op. Throws as make_plan() does.
Plan plan_dynamic(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                  const Forecaster& forecaster);

}  // namespace vdnn
