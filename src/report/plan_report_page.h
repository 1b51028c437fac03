#pragma once
// src/report/plan_report.html as text in the library.

#include <string_view>

namespace vdnn {

std::string_view plan_report_page();

}  // namespace vdnn
