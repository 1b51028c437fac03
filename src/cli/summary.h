#pragma once
// The summary line of `--json` and its counterpart for people. docs/summary.schema.json is its schema.

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "vdnn/planned_run.h"
#include "vdnn/trainer.h"

namespace vdnn {

nlohmann::ordered_json plan_summary(const PlannedRun& run, std::uint64_t seed);
nlohmann::ordered_json train_summary(const PlannedRun& run, const TrainingResult& result, std::uint64_t seed);

// What is about to happen, in a few lines.
void print_run(std::ostream& out, const PlannedRun& run);
void print_prediction(std::ostream& out, const PlannedRun& run);
void print_result(std::ostream& out, const PlannedRun& run, const TrainingResult& result);

}  // namespace vdnn
