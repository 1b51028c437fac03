#pragma once
// A plan as one page for people: `vdnn plan --report`. It needs no network and no other file, is a picture
// with tables where scripts do not run, and lets one look closer where they do. What it shows is in it as
// JSON, too (docs/plan_report.schema.json), for programs.
//
// The page is src/report/plan_report.html, where style and script stand, with its parts put in; every name
// that a network may have chosen is escaped on its way.

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// `configuration`: an object of the options in force; it is shown as it is. `advice`: where the run does not
// fit, the text of its shortage(), whose parts are parted by "; "; empty: none is shown. Throws
// InvalidArgument where the prediction was made without a trace (RunOptions::trace_prediction), DataError
// when `out` fails.
void write_plan_report(std::ostream& out, const PlannedRun& run, const nlohmann::ordered_json& configuration,
                       const std::string& advice);

}  // namespace vdnn
