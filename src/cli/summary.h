#pragma once
// The summary line of `--json`, whose schema is docs/summary.schema.json, and its counterpart for people.

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "src/cli/options.h"
#include "src/run/scaling.h"
#include "vdnn/planned_run.h"
#include "vdnn/trainer.h"

namespace vdnn {

// `arguments` are those in force (options.h).
nlohmann::ordered_json plan_summary(const PlannedRun& run, const Scaling& scaling,
                                    const RunArguments& arguments);
nlohmann::ordered_json train_summary(const PlannedRun& run, const TrainingResult& result,
                                     const RunArguments& arguments, const TrainingArguments& training);

// `product_precision` of a summary or a point.
nlohmann::ordered_json to_json(const ProductPrecisions& used);

// The origin of the rates of predicted times: "measured" by a profile of this run, "assumed" (published or
// estimated), or "recorded" with a learned step. Of the latter, only the link's rates are assumed.
const char* rates_of(const PlannedRun& run);
// For people: notes that predicted times are estimates and how to measure them; for a learned step, the basis
// of its estimate. Prints nothing if rates are measured.
void print_rates(std::ostream& out, const PlannedRun& run);

// Prints what is about to run, in a few lines.
void print_run(std::ostream& out, const PlannedRun& run);
// Prints one line if results differ in bits from those of policy none, else nothing.
void print_other_algorithms(std::ostream& out, const PlannedRun& run);
void print_prediction(std::ostream& out, const PlannedRun& run, const Scaling& scaling);
void print_result(std::ostream& out, const PlannedRun& run, const TrainingResult& result);

}  // namespace vdnn
