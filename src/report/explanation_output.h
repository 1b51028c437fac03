#pragma once
// Explanations for people, and as objects of docs/explanation.schema.json without the key "schema".

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "src/report/explanation.h"

namespace vdnn {

void print(std::ostream& out, const PlannedRun& run, const Explanation& explanation);
void print(std::ostream& out, const PlannedRun& run, const ExplainedValue& value);
void print(std::ostream& out, const PlannedRun& run, const ExplainedOp& op);

// Objects for the fullest moment, the smallest budget, the budgets (the run's own first), and the time.
std::vector<nlohmann::ordered_json> to_json(const PlannedRun& run, const Explanation& explanation);
nlohmann::ordered_json to_json(const PlannedRun& run, const ExplainedValue& value);
nlohmann::ordered_json to_json(const PlannedRun& run, const ExplainedOp& op);

}  // namespace vdnn
