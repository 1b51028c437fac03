#pragma once
// Runs for tests of reports, and the data in their pages.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "src/report/plan_report.h"
#include "vdnn/network.h"
#include "vdnn/planned_run.h"

namespace vdnn::testing {

// Text that could end its script or comment, begin a tag or an attribute, or pass for a part of the page's
// template.
inline const std::string kHostileName = "</script><script>throw 1</script><!-- & \"x\" 'y' {{data}} \xff";

inline RunOptions reported_options(Policy policy) {
  RunOptions options;
  options.device = "sim:titan-x";
  options.policy = policy;
  options.trace_prediction = true;
  return options;
}

// A small run that offloads and recomputes; network and layers have hostile names.
inline PlannedRun hostile_run(Policy policy = Policy::kOffloadAll) {
  NetworkBuilder net(kHostileName, {8, 3, 16, 16});
  Tensor x = net.convolution(kHostileName, net.input(),
                             {.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = net.relu("relu " + kHostileName, x);
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
  return plan_run(std::move(net).build(), reported_options(policy));
}

inline PlannedRun zoo_run(const std::string& model, std::int64_t batch, Policy policy,
                          double memory_share = 1) {
  RunOptions options = reported_options(policy);
  options.model.model = model;
  options.model.batch = batch;
  PlannedRun run = plan_run(options);
  if (memory_share < 1) {
    options.memory_bytes =
        static_cast<std::uint64_t>(memory_share * static_cast<double>(run.prediction.peak_bytes));
    run = plan_run(options);
  }
  return run;
}

inline std::string page_of(const PlannedRun& run,
                           const nlohmann::ordered_json& configuration = {{"batch", 8}},
                           const std::string& advice = "") {
  std::ostringstream out;
  write_plan_report(out, run, configuration, advice);
  return out.str();
}

// The data in a page, as a browser reads it.
inline nlohmann::json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"plan-report\">";
  const std::size_t begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script", begin) - begin));
}

inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace vdnn::testing
