#pragma once
// A plan as one page for people: `vdnn plan --report`. It needs no network and no other file. Without scripts
// it shows a picture with tables; with scripts it can be zoomed. It also contains its data as JSON for
// programs (docs/plan_report.schema.json).
//
// The template with style and script is src/report/plan_report.html. Names that come from a network are
// escaped.

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// `configuration`: an object of the options in force, shown as it is. `advice`: if the run does not fit,
// BudgetShortage::text(), whose parts are separated by "; "; empty: not shown. Throws InvalidArgument if the
// prediction was made without a trace (RunOptions::trace_prediction), DataError if `out` fails.
void write_plan_report(std::ostream& out, const PlannedRun& run, const nlohmann::ordered_json& configuration,
                       const std::string& advice);

}  // namespace vdnn
