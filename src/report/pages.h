#pragma once
// HTML pages embedded in the library.

#include <string_view>

namespace vdnn {

// src/report/live_page.html: requests metrics.json (live_metrics.h) once a second and draws it. It loads
// nothing else.
std::string_view live_page();

// src/report/plan_report.html: the template of a plan's report, filled in by plan_report.cpp.
std::string_view plan_report_page();

}  // namespace vdnn
