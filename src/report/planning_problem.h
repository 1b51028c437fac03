#pragma once
// A run as JSON lines for external planners: the device's memory and copy rates, each value of the tape, and
// each op with all its algorithms. docs/planning_problem.schema.json is their schema. docs/planner.md
// specifies the rules of a plan, and how an external plan is checked and predicted.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "vdnn/planned_run.h"

namespace vdnn {

// The device, then the values, then the ops, each in the tape's order. Times are those that our own policies
// use, measured or modelled.
std::vector<nlohmann::ordered_json> planning_problem(const PlannedRun& run);

}  // namespace vdnn
