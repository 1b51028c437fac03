// The page of a plan's report and its data.

#include "src/report/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/report/json_schema.h"
#include "tests/report/reported_runs.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> errors(const Json& report) {
  static const Json schema = read_json(std::string(VDNN_DOCS_DIRECTORY) + "/plan_report.schema.json");
  return SchemaCheck::errors(schema, report);
}

// Pages are long, so a failure prints only the missing text.
void expect_has(const std::string& page, const std::string& text) {
  EXPECT_NE(page.find(text), std::string::npos) << text;
}
void expect_has_not(const std::string& page, const std::string& text) {
  EXPECT_EQ(page.find(text), std::string::npos) << text;
}

// The data of a small report with an element in each list.
const Json& example() {
  static const Json report = data_of(page_of(hostile_run()));
  return report;
}

TEST(PlanReport, ItsDataObeysTheSchema) {
  EXPECT_THAT(errors(data_of(page_of(zoo_run("resnet20", 32, Policy::kOptimal, 0.4)))), IsEmpty());
  for (const Policy policy : {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll}) {
    EXPECT_THAT(errors(data_of(page_of(hostile_run(policy)))), IsEmpty()) << to_string(policy);
  }
}

TEST(PlanReport, AnOpMayBelongToNoLayer) {
  RunOptions options = reported_options(Policy::kOffloadAll);
  options.model.model = "lenet";
  options.training.clip_norm = 1.0F;
  const Json report = data_of(page_of(plan_run(options)));
  EXPECT_THAT(errors(report), IsEmpty());
  for (const Json& op : report["ops"]) {
    EXPECT_EQ(op["layer"].is_null(), op["name"] == "gradients.norm") << op["name"];
  }
}

// In the object at `place` of the example, each key is required and typed, and no other key is allowed.
void expect_strict(const std::string& place) {
  const Json::json_pointer pointer(place);
  const Json object = example().at(pointer);
  for (const auto& [key, value] : object.items()) {
    Json without = example();
    without.at(pointer).erase(key);
    EXPECT_THAT(errors(without), Not(IsEmpty())) << place << "/" << key;
    Json wrong = example();
    wrong.at(pointer)[key] = key == "configuration" ? Json("x") : Json{{"x", Json::array()}};
    EXPECT_THAT(errors(wrong), Not(IsEmpty())) << place << "/" << key;
  }
  Json unknown = example();
  unknown.at(pointer)["colour"] = "red";
  EXPECT_THAT(errors(unknown), Not(IsEmpty())) << place;
}

TEST(PlanReport, TheSchemaIsStrict) {
  expect_strict("");
  for (const std::string place : {"figures", "ops/0", "values/0", "work/0", "stalls/0", "stays/0",
                                  "decisions/0", "peak", "peak/residents/0"}) {
    expect_strict("/" + place);
  }
}

TEST(PlanReport, ItsFiguresAreThePlans) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOffloadAll);
  const Json figures = data_of(page_of(run))["figures"];
  EXPECT_EQ(figures["peak_bytes"], run.prediction.peak_bytes);
  EXPECT_EQ(figures["host_bytes"], run.prediction.host_bytes);
  EXPECT_EQ(figures["simulated"], true);
  EXPECT_EQ(figures["smallest_budget_bytes"], run.smallest_budget_bytes());
  EXPECT_EQ(figures["offload_bytes_per_step"], offload_bytes(*run.tape, run.schedule));
  EXPECT_NEAR(figures["step_seconds"], run.prediction.step_seconds, 1e-9);
  EXPECT_NEAR(figures["oracle_step_seconds"], oracle_step_seconds(run), 1e-9);
  EXPECT_NEAR(figures["lower_bound_step_seconds"], lower_bound_step_seconds(run), 1e-9);
}

TEST(PlanReport, SaysForPeopleWhatIsInIt) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOptimal, 0.4);
  const std::string page = page_of(run, {{"batch", 32}, {"seed", nullptr}});
  for (const std::string text : {"<h1>resnet20, batch 32</h1>", ">simulated<", ">policy optimal<", ">fits<",
                                 ">recomputed</td>", "<th>batch</th><td>32</td>", "<th>seed</th><td>-</td>",
                                 "<th>fits</th><td>yes</td>", "<th>step of the oracle</th><td>"}) {
    expect_has(page, text);
  }
  expect_has(page, "<th>peak of device memory</th><td>" + format_size(run.prediction.peak_bytes) + "</td>");
  const Json data = data_of(page);
  EXPECT_EQ(occurrences(page, "<tr data-value="), data["decisions"].size());
  EXPECT_EQ(occurrences(page, "<tr data-op="), data["ops"].size());
  expect_has(page, "<b>" + run.tape->op(data["peak"]["op"].get<OpId>()).name + "</b>");
}

// Raw keys are for programs, not for readers of the page.
TEST(PlanReport, ShowsNoRawKeys) {
  const std::string page = page_of(hostile_run(), {{"micro_steps", 2}, {"weight_decay", 0.1}});
  const std::regex key("<th>[a-z]+(_[a-z]+)+</th>");
  std::smatch found;
  EXPECT_FALSE(std::regex_search(page, found, key)) << found.str();
  expect_has(page, "<th>micro steps</th><td>2</td>");
}

TEST(PlanReport, ComparesWithPolicyNone) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOffloadAll);
  const Json figures = data_of(page_of(run))["figures"];
  const Prediction none = predict_policy(run, {.policy = Policy::kOffloadNone});
  EXPECT_EQ(figures["none_peak_bytes"], none.peak_bytes);
  EXPECT_NEAR(figures["none_step_seconds"], none.step_seconds, 1e-9);
  EXPECT_NEAR(figures["images_per_second"], 32 / run.prediction.step_seconds, 1e-3);
  EXPECT_EQ(figures["advice"], nullptr);
}

TEST(PlanReport, GivesAdviceWhereThePlanDoesNotFit) {
  RunOptions options = reported_options(Policy::kOffloadNone);
  options.model.model = "lenet";
  options.model.batch = 512;
  options.memory_bytes = std::uint64_t{20} << 20U;
  const PlannedRun run = plan_run(options);
  const std::optional<BudgetShortage> lacking = find_shortage(run, WaysOut::kTold);
  ASSERT_TRUE(lacking);
  const std::string advice = DoesNotFit(*lacking).what();
  const std::string page = page_of(run, {}, advice);
  expect_has(page, "<h2>It does not fit</h2>");
  EXPECT_EQ(data_of(page)["figures"]["advice"], advice);
  expect_has(page, "<li>model.batch = ");
}

TEST(PlanReport, ABudgetThatDoesNotSufficeIsSaid) {
  PlannedRun run = zoo_run("lenet", 32, Policy::kOffloadNone);
  run.target.budget_bytes = run.prediction.peak_bytes / 2;
  expect_has(page_of(run), ">does not fit<");
  expect_has(page_of(run), "<div class=\"mark budget\"");
  // The line of a budget far above the peak would flatten the rest of the drawing.
  run.target.budget_bytes = run.prediction.peak_bytes * 2;
  expect_has(page_of(run), ">fits<");
  expect_has_not(page_of(run), "<div class=\"mark budget\"");
}

// The indices of all rectangles; they must be those of the data, and no others.
std::set<std::size_t> drawn(const std::string& page, const std::string& list) {
  std::set<std::size_t> result;
  const std::regex attribute("data-" + list + "=\"([0-9]+)\"");
  for (std::sregex_iterator match(page.begin(), page.end(), attribute), end; match != end; ++match) {
    result.insert(std::stoul((*match)[1]));
  }
  return result;
}

TEST(PlanReport, DrawsAllThatIsInItsData) {
  const std::string page = page_of(zoo_run("resnet20", 32, Policy::kOffloadAll));
  const Json data = data_of(page);
  for (const auto& [list, attribute] :
       {std::pair("stays", "stay"), std::pair("work", "work"), std::pair("stalls", "stall")}) {
    const std::set<std::size_t> indices = drawn(page, attribute);
    ASSERT_FALSE(data[list].empty()) << list;
    EXPECT_EQ(indices.size(), data[list].size()) << list;
    EXPECT_EQ(*indices.rbegin() + 1, data[list].size()) << list;
  }
}

TEST(PlanReport, NamesCannotBreakThePage) {
  const std::string page = page_of(hostile_run(), {{"model", kHostileName}});
  // The page has our two scripts and no other.
  EXPECT_EQ(occurrences(page, "<script"), 2U);
  EXPECT_EQ(occurrences(page, "</script"), 2U);
  EXPECT_EQ(occurrences(page, "<!--"), 0U);
  expect_has(page,
             "&lt;/script&gt;&lt;script&gt;throw 1&lt;/script&gt;&lt;!-- &amp; &quot;x&quot; &apos;y&apos;");
  const Json data = data_of(page);
  // The report replaces bytes that are not UTF-8 and keeps the rest.
  const std::string readable = kHostileName.substr(0, kHostileName.size() - 1);
  EXPECT_THAT(data["figures"]["model"].get<std::string>(), ::testing::StartsWith(readable));
  EXPECT_THAT(data["ops"][0]["layer"].get<std::string>(), ::testing::StartsWith(readable));
}

TEST(PlanReport, IsOneFileThatAsksForNoOther) {
  const std::string page = page_of(zoo_run("lenet", 32, Policy::kOffloadNone));
  for (const char* reference : {"http:", "https:", "src=", "href=", "@import", "url(", "{{"}) {
    expect_has_not(page, reference);
  }
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

// The page of a large network must be small enough for a mail and for a browser to open at once.
TEST(PlanReport, OfALargeNetworkIsAFewMegabytes) {
  const std::string page = page_of(zoo_run("resnet152", 32, Policy::kOffloadAll));
  EXPECT_GT(data_of(page)["work"].size(), 2000U);
  EXPECT_LT(page.size(), std::size_t{6} << 20U);
}

TEST(PlanReport, WantsATrace) {
  RunOptions options = reported_options(Policy::kOffloadNone);
  options.model.model = "lenet";
  options.trace_prediction = false;
  const PlannedRun run = plan_run(options);
  std::ostringstream out;
  EXPECT_THROW(write_plan_report(out, run, Json::object(), ""), InvalidArgument);
  EXPECT_EQ(out.str(), "");
}

TEST(PlanReport, FailsWhereItCannotBeWritten) {
  std::ofstream full("/dev/full");
  EXPECT_THROW(write_plan_report(full, hostile_run(), Json::object(), ""), DataError);
}

}  // namespace
}  // namespace vdnn::testing
