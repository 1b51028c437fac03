#include "src/cli/replan_lines.h"

#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "src/cli/json_fields.h"
#include "vdnn/size.h"

namespace vdnn {

nlohmann::ordered_json to_json(const Replanning& replanning) {
  const ReplanReport& report = replanning.report;
  return {
      {"type", "replan"},
      {"step", replanning.step},
      {"measured_steps", replanning.measured_steps},
      {"outcome", to_string(report.outcome)},
      {"reason", report.reason.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(report.reason)},
      {"algorithms_changed", report.algorithms_changed},
      {"before",
       {{"expected_step_seconds", report.expected_step_seconds},
        {"corrected_step_seconds", report.corrected_step_seconds},
        {"step_seconds", value_or_null(replanning.step_seconds_before)},
        {"predicted_peak_bytes", report.predicted_peak_bytes_before},
        {"committed_bytes", replanning.committed_bytes_before}}},
      {"after",
       {{"predicted_step_seconds", report.predicted_step_seconds},
        {"step_seconds", value_or_null(replanning.step_seconds_after)},
        {"predicted_peak_bytes", report.predicted_peak_bytes},
        {"committed_bytes", replanning.committed_bytes_after}}}};
}

namespace {

void print_outcome(std::ostream& out, const ReplanReport& report) {
  switch (report.outcome) {
    case ReplanReport::Outcome::kReplanned:
      out << "a new plan"
          << (report.algorithms_changed ? ", with other algorithms, which may change results from here on"
                                        : "");
      break;
    case ReplanReport::Outcome::kKept:
      out << "the plan stays: no other is expected to be faster by 1 %";
      break;
    case ReplanReport::Outcome::kRefused:
      out << "the plan stays: no new plan could be made: " << report.reason;
      break;
  }
}

}  // namespace

void print_replanning(std::ostream& out, const Replanning& replanning) {
  const ReplanReport& report = replanning.report;
  const auto milliseconds = [](double seconds) { return seconds * 1e3; };
  const auto print_measured = [&](const std::optional<double>& seconds) {
    if (seconds) {
      out << milliseconds(*seconds) << " ms";
    } else {
      out << "not measured";
    }
  };
  out << std::fixed << std::setprecision(1) << "after step " << replanning.step << ", "
      << replanning.measured_steps << " steps measured: ";
  print_outcome(out, report);
  out << "\n  before: step ";
  print_measured(replanning.step_seconds_before);
  out << ", expected " << milliseconds(report.expected_step_seconds) << " ms, with measured times "
      << milliseconds(report.corrected_step_seconds) << " ms; memory "
      << format_size(replanning.committed_bytes_before) << ", predicted "
      << format_size(report.predicted_peak_bytes_before) << "\n  after: step ";
  print_measured(replanning.step_seconds_after);
  out << ", predicted " << milliseconds(report.predicted_step_seconds) << " ms; memory "
      << format_size(replanning.committed_bytes_after) << ", predicted "
      << format_size(report.predicted_peak_bytes) << "\n";
}

}  // namespace vdnn
