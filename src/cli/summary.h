#pragma once
// The summary line of `--json` and its counterpart for people. docs/summary.schema.json is its schema.

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "src/cli/options.h"
#include "src/train/scaling.h"
#include "vdnn/planned_run.h"
#include "vdnn/trainer.h"

namespace vdnn {

// The arguments are those in force (options.h).
nlohmann::ordered_json plan_summary(const PlannedRun& run, const Scaling& scaling,
                                    const RunArguments& arguments);
nlohmann::ordered_json train_summary(const PlannedRun& run, const TrainingResult& result,
                                     const RunArguments& arguments, const TrainingArguments& training);

// `product_precision` of a summary or a point.
nlohmann::ordered_json to_json(const ProductPrecisions& used);

// Where the rates that predicted times of this device follow from are from: "measured" by a profile of this
// run, "assumed" (a publication's, or nobody's), or "recorded" with a learned step, in which the link's alone
// are assumed.
const char* rates_of(const PlannedRun& run);
// For people: that predicted times are estimates, and how to measure; of a learned step what its estimate
// stands on. Nothing where rates are measured.
void print_rates(std::ostream& out, const PlannedRun& run);

// What is about to happen, in a few lines.
void print_run(std::ostream& out, const PlannedRun& run);
// One line where results have other bits than under `none`; else nothing.
void print_other_algorithms(std::ostream& out, const PlannedRun& run);
void print_prediction(std::ostream& out, const PlannedRun& run, const Scaling& scaling);
void print_result(std::ostream& out, const PlannedRun& run, const TrainingResult& result);

}  // namespace vdnn
