// The page of a plan's report in headless Chromium. The test adds a script to the page that moves the mouse,
// zooms, sorts and filters like a user, and records the results.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/chromium.h"
#include "tests/process.h"
#include "tests/report/reported_runs.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing::plan_report_browser_test {
namespace {

using Json = nlohmann::json;

// Comes first in the page, so that errors of the page's own scripts are recorded.
const std::string kWatch = R"(<script>
window.failures = [];
addEventListener("error", (event) => failures.push(event.message));
console.error = (text) => failures.push(String(text));
</script>)";

// Comes last in the page.
const std::string kTry = R"(<script>
const found = {};
const note = (name, look) => { try { found[name] = look(); } catch (error) { failures.push(name + ": " + error); } };
const many = (selector) => document.querySelectorAll(selector).length;
const indices = (list) => new Set([...document.querySelectorAll(`rect[data-${list}]`)].map((rect) => rect.dataset[list])).size;
const box = (plot) => document.querySelector(plot + " svg").getAttribute("viewBox") && document.querySelector(plot + " svg").viewBox.baseVal;
const mouse = (element, type, share) => {
  const over = (element.tagName === "rect" ? element : element.closest(".plot")).getBoundingClientRect();
  element.dispatchEvent(new MouseEvent(type, { bubbles: true, clientX: over.left + share * over.width, clientY: over.top }));
};
const text = (selector) => document.querySelector(selector).textContent;
const shown = (section) => [...document.querySelectorAll(section + " tbody tr")].filter((row) => !row.hidden).length;
const column = (section, number) => [...document.querySelectorAll(section + " tbody tr")].map((row) => row.cells[number]);
const places = document.querySelector(".plot.places");

note("ready", () => document.documentElement.dataset.ready);
note("title", () => text("h1"));
note("stays", () => indices("stay"));
note("work", () => indices("work"));
note("stalls", () => indices("stall"));
note("values", () => many("#values tbody tr"));
note("ops", () => many("#ops tbody tr"));
note("ticks", () => many(".axis span"));
note("scripts", () => many("script"));
note("visible", () => { const rect = document.querySelector(".plot.streams rect").getBoundingClientRect(); return rect.width > 0 && rect.height > 0; });
note("tips", () => [...document.querySelectorAll("rect")].slice(0, 400).filter((rect) => {
  mouse(rect, "mousemove", 0.5);
  return !text("#tip").trim() || /undefined|NaN/.test(text("#tip"));
}).length);
note("stayTip", () => { mouse(document.querySelector("rect[data-stay].maps"), "mousemove", 0.2); return text("#tip"); });
note("momentTip", () => { mouse(document.querySelector(".plot.memory svg path"), "mousemove", 0.5); return text("#tip"); });
note("kept", () => {
  const rect = document.querySelector("rect[data-stay].maps");
  mouse(rect, "mousedown", 0.5); mouse(rect, "mouseup", 0.5);
  return [text("#details"), many("rect.lit")];
});
note("zoomed", () => { document.querySelector("[data-zoom=in]").click(); return [box(".plot.memory").width, box(".plot.places").width, box(".plot.streams").width]; });
note("panned", () => { document.querySelector("[data-zoom=left]").click(); return box(".plot.streams").x; });
note("whole", () => { document.querySelector("[data-zoom=all]").click(); return box(".plot.streams").width; });
note("dragged", () => {
  mouse(places, "mousedown", 0.25); mouse(places, "mousemove", 0.4); mouse(places, "mouseup", 0.5);
  return [box(".plot.streams").x, box(".plot.streams").width];
});
note("wheel", () => {
  const event = new WheelEvent("wheel", { bubbles: true, cancelable: true, ctrlKey: true, deltaY: 100, clientX: places.getBoundingClientRect().left });
  places.dispatchEvent(event);
  return [event.defaultPrevented, box(".plot.streams").width];
});
note("key", () => { places.dispatchEvent(new KeyboardEvent("keydown", { key: "0", bubbles: true, cancelable: true })); return box(".plot.streams").width; });
note("sorted", () => {
  const head = document.querySelectorAll("#values th")[2];
  head.click();
  const up = column("#values", 2).map((cell) => Number(cell.dataset.v));
  head.click();
  return [up, column("#values", 2).map((cell) => Number(cell.dataset.v))];
});
note("emptyLast", () => { const head = document.querySelectorAll("#values th")[6]; head.click(); head.click(); return column("#values", 6).map((cell) => cell.textContent !== ""); });
note("filtered", () => {
  const input = document.querySelector("#values input");
  input.value = "no such name"; input.dispatchEvent(new Event("input"));
  const none = shown("#values");
  input.value = ""; input.dispatchEvent(new Event("input"));
  const select = document.querySelector("#values select");
  select.value = "offloaded"; select.dispatchEvent(new Event("change"));
  return [none, shown("#values"), text("#values .count")];
});
note("picked", () => { document.querySelector("#values tbody tr").click(); return [many("tr.picked"), text("#details b")]; });
const result = document.createElement("script");
result.type = "application/json";
result.id = "found";
result.textContent = JSON.stringify({ found, failures }).replaceAll("<", "\\u003c");
document.body.append(result);
</script>)";

class PlanReportBrowserTest : public BrowserTest {
 protected:
  // Returns the results of kTry in the page.
  Json tried(std::string page) {
    page.insert(page.find("<head>") + std::string("<head>").size(), kWatch);
    page.insert(page.rfind("</body>"), kTry);
    write("page.html", page);
    const std::string path = (directory_ / "page.html").string();
    const Outcome outcome = open_page(browser_, directory_, "file://" + path, "--window-size=1300,1600");
    const std::string open = "<script type=\"application/json\" id=\"found\">";
    const std::size_t begin = outcome.text.find(open);
    if (outcome.status != 0 || begin == std::string::npos) {
      ADD_FAILURE() << browser_ << " ended with " << outcome.status << ": " << read("log");
      return {};
    }
    const std::size_t end = outcome.text.find("</script", begin);
    return Json::parse(outcome.text.substr(begin + open.size(), end - begin - open.size()));
  }
};

TEST_F(PlanReportBrowserTest, RunsWithoutAnErrorAndShowsAllThatItsDataHas) {
  const PlannedRun runs[] = {zoo_run("resnet20", 32, Policy::kOffloadAll),
                             zoo_run("resnet20", 32, Policy::kOptimal, 0.4),
                             zoo_run("lenet", 32, Policy::kBaseline), hostile_run()};
  for (const PlannedRun& run : runs) {
    const std::string page = page_of(run);
    const Json data = data_of(page);
    const Json result = tried(page);
    ASSERT_TRUE(result.is_object());
    EXPECT_EQ(result["failures"], Json::array());
    const Json& found = result["found"];
    EXPECT_EQ(found["ready"], "yes");
    for (const auto& [what, list] :
         {std::pair("stays", "stays"), std::pair("work", "work"), std::pair("stalls", "stalls"),
          std::pair("values", "decisions"), std::pair("ops", "ops")}) {
      EXPECT_EQ(found[what], data[list].size()) << what;
    }
    EXPECT_EQ(found["title"],
              data["figures"]["model"].get<std::string>() + ", batch " + data["figures"]["batch"].dump());
    // Two scripts of the page and two of the test.
    EXPECT_EQ(found["scripts"], 4);
    EXPECT_GT(found["ticks"], 3);
    EXPECT_EQ(found["visible"], true);
    EXPECT_EQ(found["tips"], 0);
  }
}

TEST_F(PlanReportBrowserTest, LetsOneLookCloser) {
  const Json result = tried(page_of(zoo_run("resnet20", 32, Policy::kOffloadAll)));
  ASSERT_TRUE(result.is_object());
  EXPECT_EQ(result["failures"], Json::array());
  const Json& found = result["found"];
  EXPECT_EQ(found["zoomed"], Json({50000, 50000, 50000}));
  EXPECT_EQ(found["panned"], 12500);
  EXPECT_EQ(found["whole"], 100000);
  ASSERT_EQ(found["dragged"].size(), 2U);
  EXPECT_NEAR(found["dragged"][0], 25000, 100);
  EXPECT_NEAR(found["dragged"][1], 25000, 100);
  EXPECT_EQ(found["wheel"][0], true);
  EXPECT_NEAR(found["wheel"][1], 31250, 150);
  EXPECT_EQ(found["key"], 100000);
}

TEST_F(PlanReportBrowserTest, SaysWhatTheMouseIsAt) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOffloadAll);
  const Json found = tried(page_of(run))["found"];
  EXPECT_THAT(found["stayTip"].get<std::string>(),
              ::testing::AllOf(::testing::HasSubstr("feature maps, "), ::testing::HasSubstr("fate: "),
                               ::testing::HasSubstr("next: ")));
  EXPECT_THAT(found["momentTip"].get<std::string>(),
              ::testing::AllOf(::testing::HasSubstr(" in use"), ::testing::HasSubstr("parameters "),
                               ::testing::HasSubstr("running: ")));
  const std::string tip = found["stayTip"];
  EXPECT_THAT(found["kept"][0].get<std::string>(), ::testing::StartsWith(tip.substr(0, tip.find('\n'))));
  EXPECT_GE(found["kept"][1], 2);  // the place and the op that made the value
}

TEST_F(PlanReportBrowserTest, SortsAndFilters) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOffloadAll);
  const std::string page = page_of(run);
  const Json found = tried(page)["found"];
  const auto up = found["sorted"][0].get<std::vector<double>>();
  const auto down = found["sorted"][1].get<std::vector<double>>();
  EXPECT_TRUE(std::ranges::is_sorted(up));
  EXPECT_TRUE(std::ranges::is_sorted(down, std::ranges::greater{}));
  EXPECT_LT(up.front(), up.back());
  const auto filled = found["emptyLast"].get<std::vector<bool>>();
  EXPECT_TRUE(std::ranges::is_sorted(filled, std::ranges::greater{}));
  std::size_t offloaded = 0;
  const Json data = data_of(page);
  for (const Json& decision : data["decisions"]) {
    offloaded += decision["fate"] == "offloaded" ? 1 : 0;
  }
  EXPECT_EQ(found["filtered"][0], 0);
  EXPECT_EQ(found["filtered"][1], offloaded);
  EXPECT_EQ(found["filtered"][2], std::to_string(offloaded) + " of " + std::to_string(filled.size()));
  EXPECT_EQ(found["picked"][0], 1);
}

}  // namespace
}  // namespace vdnn::testing::plan_report_browser_test
