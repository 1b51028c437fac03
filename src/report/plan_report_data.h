#pragma once
// The data of a plan's report (plan_report.h) as JSON; docs/plan_report.schema.json is its schema.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/report/step_picture.h"
#include "vdnn/planned_run.h"

namespace vdnn {

// The phase's name in the data and on the page.
std::string phase_name(Phase phase);
std::string kind_name(ValueKind kind);

// `configuration` and `advice` as in plan_report.h.
nlohmann::ordered_json plan_report_data(const PlannedRun& run, const StepPicture& picture,
                                        const nlohmann::ordered_json& configuration,
                                        const std::string& advice);

}  // namespace vdnn
