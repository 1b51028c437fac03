#pragma once
// All that a planner of one's own has to know of a run, as JSON lines: what the device has and how fast it
// copies, each value of the tape, and each op with every algorithm that exists for it, chosen or not.
// docs/planning_problem.schema.json is their schema; docs/planner.md says what a plan must obey, and how one
// that was found elsewhere is checked and predicted.

#include <nlohmann/json.hpp>
#include <vector>

#include "vdnn/planned_run.h"

namespace vdnn {

// The device, then the values, then the ops, each in the tape's order. Seconds are those that every policy of
// ours is handed, measured or modelled.
std::vector<nlohmann::ordered_json> planning_problem(const PlannedRun& run);

}  // namespace vdnn
