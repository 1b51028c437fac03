// The page of a running `vdnn train` in Chromium. The test replaces the server with prepared answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/report/live_metrics.h"
#include "src/report/pages.h"
#include "tests/chromium.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing::live_page_browser_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

// Each request records the page's current state and receives the next answer. null: the server does not
// answer.
constexpr const char* kServer = R"(<script>
const shown = [];
const text = (selector) => document.querySelector(selector)?.textContent;
const note = () => shown.push({
  status: text("#status"), lost: document.querySelector("#status").className, title: text("#title"),
  figures: Object.fromEntries([...document.querySelectorAll("#figures div")].map(
      (box) => [box.querySelector("dt").textContent, box.querySelector("dd").textContent])),
  ranges: [...document.querySelectorAll("figcaption span")].map((range) => range.textContent),
  axes: [...document.querySelectorAll(".axis")].map((axis) => axis.textContent),
  paths: [...document.querySelectorAll("svg")].map((svg) => svg.querySelector("path")?.getAttribute("d") ?? ""),
  step: document.documentElement.dataset.step ?? null,
});
window.fetch = async (path, { signal }) => {
  if (path !== "metrics.json" || !(signal instanceof AbortSignal)) throw new Error("another request");
  note();
  if (shown.length > answers.length) {
    const result = document.createElement("script");
    result.type = "application/json";
    result.id = "shown";
    result.textContent = JSON.stringify(shown).replaceAll("<", "\\u003c");
    document.body.append(result);
    return new Promise(() => {});
  }
  const answer = answers[shown.length - 1];
  if (answer === null) throw new Error("no answer");
  return { ok: true, json: async () => answer };
};
</script>)";

class LivePageBrowserTest : public BrowserTest {
 protected:
  // The page's state after each of the answers.
  std::vector<Json> shown(const std::vector<Json>& answers) const {
    std::string page(live_page());
    page.insert(page.find("<script>"),
                "<script>const answers = " + Json(answers).dump() + ";</script>" + kServer);
    write("page.html", page);
    const Outcome outcome = open_page(browser_, directory_, "file://" + (directory_ / "page.html").string(),
                                      "--virtual-time-budget=30000");
    const std::string open = "<script type=\"application/json\" id=\"shown\">";
    const std::size_t begin = outcome.text.find(open);
    if (outcome.status != 0 || begin == std::string::npos) {
      ADD_FAILURE() << browser_ << " ended with " << outcome.status << ": " << read("log");
      return std::vector<Json>(answers.size());
    }
    EXPECT_THAT(read("log"), ::testing::Not(HasSubstr("CONSOLE")));
    const std::size_t end = outcome.text.find("</script", begin);
    const Json notes = Json::parse(outcome.text.substr(begin + open.size(), end - begin - open.size()));
    return {notes.begin() + 1, notes.end()};  // the first state precedes any answer
  }
};

TrainingMetrics started() {
  TrainingMetrics metrics{.model = "lenet", .device = "cpu", .policy = "all", .budget_bytes = 8192};
  set_step(metrics, 0, 25, 10);
  return metrics;
}

TrainingMetrics at_step(std::uint64_t step, double loss) {
  TrainingMetrics metrics = started();
  set_step(metrics, step, 25, 10);
  metrics.loss = loss;
  metrics.memory_bytes = 1024 * step;
  metrics.peak_bytes = 1024 * step;
  return metrics;
}

// The answers of a training run that is planned, starts, and runs these steps.
std::vector<Json> answers_of(const std::vector<TrainingMetrics>& steps) {
  LiveMetrics live;
  std::vector<Json> answers{live.to_json()};
  live.start(started());
  answers.emplace_back(live.to_json());
  for (const TrainingMetrics& step : steps) {
    live.publish(step);
    answers.emplace_back(live.to_json());
  }
  return answers;
}

std::vector<std::string> all(const std::vector<Json>& shown, const Json::json_pointer& place) {
  std::vector<std::string> values;
  for (const Json& each : shown) {
    const Json value = each.contains(place) ? each.at(place) : Json();
    values.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return values;
}

TEST_F(LivePageBrowserTest, DrawsEachStepAndBeginsAnewWithAnotherTraining) {
  std::vector<Json> answers = answers_of({at_step(1, 2.5), at_step(2, 1.5)});
  answers.emplace_back();
  for (const Json& answer : answers_of({})) {  // a second training run, at the same port
    answers.push_back(answer);
  }
  const std::vector<Json> shown = this->shown(answers);
  EXPECT_THAT(all(shown, "/status"_json_pointer),
              ElementsAre("the training is being planned", "waiting for the first step", "training",
                          "training", StartsWith("the training does not answer"),
                          "the training is being planned", "waiting for the first step"));
  EXPECT_THAT(all(shown, "/lost"_json_pointer), ElementsAre("", "", "", "", "lost", "", ""));
  EXPECT_THAT(all(shown, "/figures/step"_json_pointer),
              ElementsAre("-", "0 of 25", "1 of 25", "2 of 25", "2 of 25", "-", "0 of 25"));
  EXPECT_THAT(all(shown, "/figures/loss"_json_pointer), ElementsAre("-", "-", "2.5", "1.5", "1.5", "-", "-"));
  EXPECT_THAT(all(shown, "/figures/peak"_json_pointer),
              ElementsAre("-", "-", "1 KiB", "2 KiB", "2 KiB", "-", "-"));
  EXPECT_THAT(
      all(shown, "/paths/0"_json_pointer),
      ElementsAre("", "", "M0.00 96.00", "M0.00 4.00L1000.00 96.00", "M0.00 4.00L1000.00 96.00", "", ""));
  EXPECT_THAT(all(shown, "/axes/0"_json_pointer),
              ElementsAre("", "", "step 1step 1", "step 1step 2", "step 1step 2", "", ""));
}

// Regression: the page rounded numbers to three decimals, and a NaN looked like a missing measurement.
TEST_F(LivePageBrowserTest, ShowsSmallLossesAndThoseThatAreNoNumbers) {
  const std::vector<Json> shown = this->shown(answers_of(
      {at_step(1, 0.000123456), at_step(2, std::nan("")), at_step(3, -HUGE_VAL), at_step(4, 12345.678)}));
  EXPECT_THAT(all(shown, "/figures/loss"_json_pointer),
              ElementsAre("-", "-", "0.00012346", "NaN", "-Inf", "12,346"));
  EXPECT_THAT(all(shown, "/ranges/0"_json_pointer),
              ElementsAre("", "not measured", "0.0001235 to 0.0001235", "0.0001235 to 0.0001235",
                          "0.0001235 to 0.0001235", "0.0001235 to 12,350"));
}

}  // namespace
}  // namespace vdnn::testing::live_page_browser_test
