#include "src/report/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/plan/readers.h"
#include "src/report/markup.h"
#include "src/report/pages.h"
#include "src/report/plan_report_data.h"
#include "src/report/report_drawing.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

// --- text -------------------------------------------------------------------------------------------------

// JSON without sequences that end a script or begin a tag or a comment in HTML. Names that are not UTF-8 must
// not prevent the report.
std::string json_in_html(const Json& json) {
  std::string text;
  for (const char letter : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (letter == '<') {
      text += "\\u003c";
    } else {
      text += letter;
    }
  }
  return text;
}

std::string printed(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

// The duration with at least four significant digits.
std::string duration(double seconds) {
  const double size = std::abs(seconds);
  if (size >= 1) {
    return printed("%.3f s", seconds);
  }
  return size == 0 ? "0 ms" : printed(size < 1e-3 ? "%.4f ms" : "%.2f ms", seconds * 1e3);
}

// The size as format_size() writes it, without the bytes in parentheses.
std::string short_size(std::uint64_t bytes) {
  const std::string text = format_size(bytes);
  return text.substr(0, text.find(" ("));
}

std::string counted(std::uint64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string share_text(double share) {
  return printed("%.1f %%", share * 100);
}

// --- facts -------------------------------------------------------------------------------------------------

// A JSON key in words, without its unit, which follows the figure.
std::string words_of(const std::string& key) {
  constexpr std::array<std::pair<std::string_view, const char*>, 17> kWords{
      {{"rates_source", "rates from"},
       {"algorithms_source", "algorithms from"},
       {"budget_bytes", "budget of device memory"},
       {"host_budget_bytes", "budget of page-locked memory"},
       {"peak_bytes", "peak of device memory"},
       {"average_bytes", "average of device memory"},
       {"library_bytes", "memory of libraries"},
       {"host_bytes", "page-locked memory"},
       {"workspace_bytes", "largest workspace"},
       {"offload_bytes_per_step", "offloaded per step"},
       {"recomputed_ops", "recomputed ops"},
       {"step_seconds", "step"},
       {"stall_seconds", "compute waits"},
       {"oracle_step_seconds", "step of the oracle"},
       {"lower_bound_step_seconds", "lower bound of the step"},
       {"none_peak_bytes", "peak of policy none"},
       {"none_step_seconds", "step of policy none"}}};
  const auto found = std::ranges::find(kWords, key, &std::pair<std::string_view, const char*>::first);
  if (found != kWords.end()) {
    return found->second;
  }
  std::string words = key;
  for (const std::string_view unit : {"_bytes", "_seconds"}) {
    if (words.ends_with(unit)) {
      words.resize(words.size() - unit.size());
    }
  }
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string text_of(std::string_view key, const Json& value) {
  if (value.is_null()) {
    return "-";
  }
  if (value.is_boolean()) {
    return value.get<bool>() ? "yes" : "no";
  }
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number_unsigned() && (key.ends_with("_bytes") || key.ends_with("_bytes_per_step"))) {
    return format_size(value);
  }
  if (value.is_number() && key.ends_with("_seconds")) {
    return duration(value);
  }
  return value.dump();
}

// --- the page ----------------------------------------------------------------------------------------------

// The part of the budget that is left for the plan.
std::uint64_t budget_of_plan(const PlannedRun& run) {
  return run.target.budget_bytes - std::min(run.target.budget_bytes, run.target.library_bytes);
}

// The top of the memory drawings, a little above all that they show. They show the budget's line unless it
// would flatten the rest.
std::uint64_t top_bytes(const PlannedRun& run) {
  constexpr double kMargin = 1.03;
  constexpr double kNear = 1.5;
  const auto peak = static_cast<double>(run.prediction.peak_bytes);
  const auto budget = static_cast<double>(budget_of_plan(run));
  return static_cast<std::uint64_t>(kMargin * (budget <= kNear * peak ? std::max(peak, budget) : peak));
}

class Page {
 public:
  Page(const PlannedRun& run, const StepPicture& picture, const Json& report)
      : run_(run), tape_(*run.tape), picture_(picture), report_(report), top_(top_bytes(run)) {}

  // Writes the part that the template names `part`.
  void write(std::ostream& out, std::string_view part) const {
    using Writer = void (Page::*)(std::ostream&) const;
    static const std::map<std::string_view, Writer> kParts{
        {"title", &Page::write_title},   {"badges", &Page::write_badges},
        {"advice", &Page::write_advice}, {"tiles", &Page::write_tiles},
        {"facts", &Page::write_facts},   {"box", &Page::write_box},
        {"marks", &Page::write_marks},   {"memory", &Page::write_memory},
        {"places", &Page::write_places}, {"streams", &Page::write_streams},
        {"lanes", &Page::write_lanes},   {"reductions", &Page::write_reductions},
        {"axis", &Page::write_axis},     {"peak", &Page::write_peak},
        {"values", &Page::write_values}, {"ops", &Page::write_ops},
        {"data", &Page::write_data}};
    (this->*kParts.at(part))(out);
  }

 private:
  void write_title(std::ostream& out) const {
    out << escaped(run_.tape->model()) << ", batch " << run_.batch();
  }

  void write_badges(std::ostream& out) const {
    const auto badge = [&](const char* css, const std::string& text) {
      out << "<span class=\"badge " << css << "\">" << escaped(text) << "</span>\n";
    };
    badge("", run_.target.name);
    if (run_.target.simulated) {
      badge("simulated", "simulated");
    }
    badge("", "policy " + to_string(run_.plan.options.policy));
    badge(run_.fits() ? "good" : "bad", run_.fits() ? "fits" : "does not fit");
    out << "<p class=\"soft\">" << (run_.target.simulated ? "simulated: " : "times as of ")
        << escaped(run_.target.profile.source) << "; algorithms: " << escaped(run_.algorithms_source())
        << ", " << to_string(run_.plan.options.preference) << "</p>\n";
  }

  // Writes the shortage in words, then each way out.
  void write_advice(std::ostream& out) const {
    const Json& advice = report_["figures"]["advice"];
    if (advice.is_null()) {
      return;
    }
    std::istringstream parts(advice.get<std::string>());
    out << "<section class=\"card advice\"><h2>It does not fit</h2>\n<ul>\n";
    for (std::string part; std::getline(parts >> std::ws, part, ';');) {
      out << "<li>" << escaped(part) << "</li>\n";
    }
    out << "</ul></section>\n";
  }

  static void write_tile(std::ostream& out, const char* name, const std::string& figure,
                         const std::string& note) {
    out << "<div class=\"tile\"><div class=\"name\">" << name << "</div><div class=\"figure\">"
        << escaped(figure) << "</div><div class=\"note\">" << escaped(note) << "</div></div>\n";
  }

  void write_tiles(std::ostream& out) const {
    const Prediction& prediction = run_.prediction;
    const double oracle = report_["figures"]["oracle_step_seconds"];
    const double bound = report_["figures"]["lower_bound_step_seconds"];
    write_tile(out, "Peak of device memory", short_size(prediction.peak_bytes),
               "budget " + short_size(run_.target.budget_bytes) + ", smallest possible " +
                   short_size(run_.smallest_budget_bytes()));
    write_tile(out, "Average", short_size(report_["figures"]["average_bytes"]),
               "largest workspace " + short_size(report_["figures"]["workspace_bytes"]));
    write_tile(out, "Step", duration(prediction.step_seconds),
               "oracle " + duration(oracle) + ", lower bound " + duration(bound));
    const double none_seconds = report_["figures"]["none_step_seconds"];
    const std::uint64_t none_bytes = report_["figures"]["none_peak_bytes"];
    write_tile(out, "Images per second",
               printed("%.4g", report_["figures"]["images_per_second"].get<double>()),
               counted(run_.options.training.ranks, "device") + ", batch " + std::to_string(run_.batch()));
    write_tile(out, "Share of policy none's memory",
               share_text(static_cast<double>(prediction.peak_bytes) / static_cast<double>(none_bytes)),
               "in " + share_text(prediction.step_seconds / none_seconds) + " of its time: none needs " +
                   short_size(none_bytes) + " and " + duration(none_seconds));
    write_tile(out, "Share of the oracle's speed", share_text(oracle / prediction.step_seconds),
               "compute waits " + duration(prediction.stall_seconds) + " per step");
    write_tile(out, "Offloaded per step", short_size(report_["figures"]["offload_bytes_per_step"]),
               "page-locked " + short_size(prediction.host_bytes));
    write_tile(out, "Recomputed ops", std::to_string(recomputed_ops(run_.schedule)),
               "of " + std::to_string(tape_.ops().size()) + " per step");
  }

  static void write_object(std::ostream& out, const char* caption, const Json& object) {
    out << "<table class=\"facts\"><caption>" << caption << "</caption>\n";
    for (const auto& [key, value] : object.items()) {
      out << "<tr><th>" << escaped(words_of(key)) << "</th><td>" << escaped(text_of(key, value))
          << "</td></tr>\n";
    }
    out << "</table>\n";
  }

  void write_facts(std::ostream& out) const {
    write_object(out, "Figures", report_["figures"]);
    write_object(out, "Configuration in force", report_["configuration"]);
  }

  void write_box(std::ostream& out) const { out << "0 0 " << kDrawingWidth << ' ' << kDrawingHeight; }

  // Writes a line across the memory drawings, placed from the bottom.
  void write_mark(std::ostream& out, const char* css, std::uint64_t bytes, const std::string& text) const {
    out << "<div class=\"mark " << css << "\" style=\"bottom:"
        << printed("%.3f", 100 * static_cast<double>(bytes) / static_cast<double>(top_)) << "%\"><span>"
        << escaped(text) << "</span></div>\n";
  }

  void write_marks(std::ostream& out) const {
    constexpr std::uint64_t kMostTicks = 6;
    std::uint64_t tick = 1;
    while (top_ / tick > kMostTicks) {
      tick *= 2;
    }
    for (std::uint64_t bytes = 0; bytes <= top_; bytes += tick) {
      write_mark(out, "tick", bytes, bytes == 0 ? "0" : short_size(bytes));
    }
    write_mark(out, "peak", run_.prediction.peak_bytes, "peak " + short_size(run_.prediction.peak_bytes));
    const std::uint64_t budget = budget_of_plan(run_);
    if (budget <= top_) {
      write_mark(out, "budget", budget, "budget " + short_size(budget));
    }
  }

  void write_memory(std::ostream& out) const { draw_memory(out, picture_, top_); }
  void write_places(std::ostream& out) const { draw_places(out, picture_, top_); }
  void write_streams(std::ostream& out) const { draw_streams(out, picture_); }

  void write_lanes(std::ostream& out) const {
    const std::size_t count = lanes(picture_);
    const double height = 100 / static_cast<double>(count);
    for (std::size_t lane = 0; lane < count; ++lane) {
      out << "<div class=\"lane\" style=\"top:" << printed("%g", static_cast<double>(lane) * height)
          << "%;height:" << printed("%g", height) << "%\">" << to_string(static_cast<StreamRole>(lane))
          << "</div>\n";
    }
  }

  // Writes the legend of reductions if the step has any.
  void write_reductions(std::ostream& out) const {
    if (lanes(picture_) == kStreamRoles) {
      out << "\n&nbsp;<i class=\"swatch reduce\"></i>reductions over the devices";
    }
  }

  // The largest first, then one entry for the small ones of each content.
  static std::vector<Resident> shown(const FullestMoment& peak) {
    constexpr std::uint64_t kSmallPart = 100;
    struct Rest {
      std::size_t count = 0;
      std::uint64_t bytes = 0;
    };
    std::vector<Resident> result;
    std::map<Content, Rest> rest;
    for (const Resident& resident : peak.residents) {
      if (resident.bytes >= peak.bytes / kSmallPart) {
        result.push_back(resident);
      } else {
        ++rest[resident.content].count;
        rest[resident.content].bytes += resident.bytes;
      }
    }
    const auto large = static_cast<std::ptrdiff_t>(result.size());
    for (const auto& [content, small] : rest) {
      result.push_back({.name = std::to_string(small.count) + " of less than 1 % each",
                        .content = content,
                        .bytes = small.bytes});
    }
    std::ranges::stable_sort(result.begin() + large, result.end(), std::ranges::greater{}, &Resident::bytes);
    return result;
  }

  // Labels of both ends; a script adds more in between.
  void write_axis(std::ostream& out) const {
    out << "<span style=\"left:0\">0 ms</span><span style=\"left:100%\">" << duration(picture_.step_seconds)
        << "</span>";
  }

  void write_peak(std::ostream& out) const {
    const FullestMoment& peak = picture_.peak;
    if (peak.op == kNone) {
      out << "<p>No op uses memory.</p>\n";
      return;
    }
    out << "<p>Most memory is allocated for <b>" << escaped(tape_.op(peak.op).name) << "</b>, at "
        << duration(peak.seconds) << " of the step: " << format_size(peak.bytes) << ", of "
        << format_size(run_.prediction.peak_bytes) << " committed. Contents at that moment:</p>\n"
        << "<table "
           "class=\"list\"><thead><tr><th>what</th><th>content</th><th>size</th><th>share</th></tr></thead>"
           "<tbody>\n";
    for (const Resident& resident : shown(peak)) {
      out << "<tr>" << name_cell(resident.name) << "<td>" << swatch(resident.content)
          << to_string(resident.content) << "</td>" << size_cell(resident.bytes) << "<td class=\"number\">"
          << share_text(static_cast<double>(resident.bytes) / static_cast<double>(peak.bytes))
          << "</td></tr>\n";
    }
    out << "</tbody></table>\n";
  }

  static std::string swatch(Content content) {
    return std::string("<i class=\"swatch ") + css_class(content) + "\"></i>";
  }
  static std::string cell(const std::string& text) { return "<td>" + escaped(text) + "</td>"; }
  static std::string name_cell(const std::string& text) {
    return "<td class=\"name\">" + escaped(text) + "</td>";
  }
  // The table sorts by `value`.
  static std::string number_cell(double value, const std::string& text) {
    return "<td class=\"number\" data-v=\"" + printed("%.9g", value) + "\">" + escaped(text) + "</td>";
  }
  static std::string size_cell(std::uint64_t bytes) {
    return number_cell(static_cast<double>(bytes), short_size(bytes));
  }
  std::string op_cell(OpId op) const {
    return op == kNone ? "<td></td>"
                       : "<td class=\"name\" data-v=\"" + std::to_string(op) + "\">" +
                             escaped(tape_.op(op).name) + "</td>";
  }

  // The begins of copies or launches, and their total time.
  std::string work_cell(std::span<const std::uint32_t> indices) const {
    if (indices.empty()) {
      return "<td></td>";
    }
    double seconds = 0;
    for (const std::uint32_t index : indices) {
      seconds += picture_.work[index].end - picture_.work[index].begin;
    }
    const double begin = picture_.work[indices.front()].begin;
    return number_cell(begin, "at " + duration(begin) + ", " + duration(seconds));
  }

  void write_values(std::ostream& out) const {
    for (const Decision& decision : picture_.decisions) {
      const Value& value = tape_.value(decision.value);
      out << "<tr data-value=\"" << decision.value << "\">" << name_cell(value.name)
          << cell(kind_name(value.kind)) << size_cell(value.bytes) << "<td class=\"fate "
          << to_string(decision.fate) << "\">" << to_string(decision.fate) << "</td>"
          << op_cell(tape_.producer(decision.value)) << op_cell(first_backward_reader(tape_, decision.value))
          << work_cell(decision.offloads) << work_cell(decision.prefetches)
          << work_cell(decision.recomputations)
          << (decision.hidden_share ? number_cell(*decision.hidden_share, share_text(*decision.hidden_share))
                                    : "<td></td>")
          << "</tr>\n";
    }
  }

  void write_ops(std::ostream& out) const {
    std::vector<double> seconds(tape_.ops().size(), 0);
    std::vector<int> launches(tape_.ops().size(), 0);
    for (const PicturedWork& work : picture_.work) {
      if (is_launch(work.kind)) {
        seconds[work.op] += work.end - work.begin;
        ++launches[work.op];
      }
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      const Op& op = tape_.op(id);
      const Algorithm& algorithm = op.algorithms[run_.schedule.algorithms[id]];
      out << "<tr data-op=\"" << id << "\">" << number_cell(id, std::to_string(id)) << name_cell(op.name)
          << cell(phase_name(op.phase)) << cell(algorithm.name)
          << number_cell(static_cast<double>(op.algorithms.size()), std::to_string(op.algorithms.size()))
          << size_cell(algorithm.workspace_bytes) << number_cell(launches[id], std::to_string(launches[id]))
          << number_cell(seconds[id], duration(seconds[id])) << "</tr>\n";
    }
  }

  void write_data(std::ostream& out) const { out << json_in_html(report_); }

  const PlannedRun& run_;
  const Tape& tape_;
  const StepPicture& picture_;
  const Json& report_;
  std::uint64_t top_;
};

// Fills in the template's {{parts}}.
void fill(std::ostream& out, std::string_view text, const Page& page) {
  constexpr std::string_view kOpen = "{{";
  constexpr std::string_view kClose = "}}";
  for (std::size_t open = text.find(kOpen); open != std::string_view::npos; open = text.find(kOpen)) {
    const std::size_t close = text.find(kClose, open);
    out << text.substr(0, open);
    page.write(out, text.substr(open + kOpen.size(), close - open - kOpen.size()));
    text.remove_prefix(close + kClose.size());
  }
  out << text;
}

}  // namespace

void write_plan_report(std::ostream& out, const PlannedRun& run, const Json& configuration,
                       const std::string& advice) {
  const StepPicture picture = picture_of(run);
  const Json report = plan_report_data(run, picture, configuration, advice);
  fill(out, plan_report_page(), Page(run, picture, report));
  if (!out.flush()) {
    throw DataError("report: writing failed");
  }
}

}  // namespace vdnn
