#pragma once
// A run whose values have several lives per step.

#include <cstdint>
#include <utility>

#include "tests/plan/lives_plan.h"
#include "vdnn/planned_run.h"
#include "vdnn/predictor.h"

namespace vdnn::testing {

// Keeps the algorithms of `run`.
inline PlannedRun with_several_lives(PlannedRun run, std::uint64_t seed,
                                     std::uint64_t placement_alignment = 0) {
  Plan lives = lives_plan(*run.tape, seed);
  run.plan.transfers = std::move(lives.transfers);
  run.plan.recomputations = std::move(lives.recomputations);
  run.plan.placement_alignment = placement_alignment;
  run.schedule = make_schedule(*run.tape, run.plan);
  run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
  return run;
}

}  // namespace vdnn::testing
