#include "src/report/sweep_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/report/xml.h"

namespace vdnn::sweep_chart_test {
namespace {

using ::testing::HasSubstr;
using testing::XmlElement;

std::vector<PlannedRun> lenet() {
  return {plan_run(
      {.model = {.model = "lenet", .batch = 128}, .device = "sim:titan-x", .policy = Policy::kOffloadNone})};
}

// A sweep of one policy in two precisions, on a GPU that has both; complete enough for a chart.
Sweep in_fp32_and_bf16() {
  RunOptions options{.model = {.model = "lenet", .batch = 128},
                     .device = "sim:h100",
                     .policy = Policy::kOffloadNone,
                     .tf32 = false};
  std::vector<PlannedRun> runs{plan_run(options)};
  options.training.precision.storage = DataType::kBf16;
  runs.push_back(plan_run(options));
  return sweep_budgets(runs, {.policies = {Policy::kOptimal, Policy::kOffloadNone}, .points = 4});
}

std::vector<XmlElement> chart_of(const Sweep& sweep) {
  std::ostringstream text;
  write_sweep_chart(text, sweep);
  return testing::XmlReader::read(text.str());
}

std::vector<XmlElement> named(const std::vector<XmlElement>& all, const std::string& name,
                              const std::string& kind = "") {
  std::vector<XmlElement> result;
  std::ranges::copy_if(all, std::back_inserter(result), [&](const XmlElement& element) {
    return element.name == name && (kind.empty() || element.attribute("class") == kind);
  });
  return result;
}

double number(const XmlElement& element, const std::string& key) {
  return std::stod(element.attribute(key));
}

// The scale of a logarithmic axis, computed from the positions and texts of its first and last labels.
class Axis {
 public:
  Axis(const std::vector<XmlElement>& ticks, const std::string& key, double shift)
      : key_(key), shift_(shift) {
    if (ticks.size() < 2) {
      throw std::invalid_argument("the axis has fewer than two labels");
    }
    first_ = value(ticks.front());
    begin_ = number(ticks.front(), key);
    rate_ = std::log(value(ticks.back()) / first_) / (number(ticks.back(), key) - begin_);
  }
  double at(double position) const { return first_ * std::exp(rate_ * (position + shift_ - begin_)); }

  static double value(const XmlElement& tick) {
    const double number = std::stod(tick.text);
    return tick.text.ends_with("GiB") ? number * 1024 : number;
  }

 private:
  std::string key_;
  double shift_;  // how much farther right or down a label is than its tick
  double first_ = 0;
  double begin_ = 0;
  double rate_ = 0;
};

TEST(SweepChart, DrawsThePointsThatWereComputed) {
  const Sweep sweep = sweep_budgets(lenet(), {.points = 6});
  const std::vector<XmlElement> chart = chart_of(sweep);
  const Axis budgets(named(chart, "text", "x"), "x", 0);
  const Axis times(named(chart, "text", "y"), "y", 4);
  std::size_t drawn = 0;
  for (const Policy policy : SweepOptions().policies) {
    const std::vector<XmlElement> circles = named(chart, "circle", to_string(policy));
    std::vector<SweepPoint> fitting;
    std::ranges::copy_if(sweep.points, std::back_inserter(fitting), [&](const SweepPoint& point) {
      return point.approach == Approach(policy) && point.fits;
    });
    ASSERT_EQ(circles.size(), fitting.size()) << to_string(policy);
    for (std::size_t each = 0; each < circles.size(); ++each) {
      const double mebibytes = static_cast<double>(fitting[each].budget_bytes) / 1048576.0;
      const double ratio = fitting[each].step_seconds / fitting[each].oracle_step_seconds;
      // The tolerance allows for labels with four digits and positions with two decimals.
      EXPECT_NEAR(budgets.at(number(circles[each], "cx")) / mebibytes, 1, 2e-3);
      EXPECT_NEAR(times.at(number(circles[each], "cy")) / ratio, 1, 2e-3);
      ++drawn;
    }
  }
  EXPECT_EQ(named(chart, "circle").size(), drawn);
  EXPECT_GT(drawn, 6U);
}

TEST(SweepChart, SaysWhatItIs) {
  const std::vector<XmlElement> chart =
      chart_of(sweep_budgets(lenet(), {.policies = {Policy::kOptimal, Policy::kBaseline}, .points = 3}));
  EXPECT_EQ(chart.front().name, "svg");
  EXPECT_EQ(chart.front().attribute("xmlns"), "http://www.w3.org/2000/svg");
  EXPECT_THAT(named(chart, "title").front().text, HasSubstr("lenet, batch 128, on sim:titan-x (simulated)"));
  std::vector<std::string> legend;
  for (const XmlElement& text : named(chart, "text", "legend")) {
    legend.push_back(text.text);
  }
  EXPECT_THAT(legend, ::testing::ElementsAre("optimal", "baseline: does not fit", "no plan possible"));
  EXPECT_EQ(named(chart, "polygon", "bound").size(), 1U);
}

double end_of(const XmlElement& text) {
  const double font_size = text.attribute("font-size").empty() ? 13 : number(text, "font-size");
  return number(text, "x") + 0.56 * font_size * static_cast<double>(text.text.size());
}

TEST(SweepChart, ClipsNoText) {
  const std::vector<XmlElement> chart = chart_of(in_fp32_and_bf16());
  std::size_t looked_at = 0;
  for (const XmlElement& text : named(chart, "text")) {
    if (text.attribute("text-anchor").empty()) {
      EXPECT_LE(end_of(text), number(chart.front(), "width")) << text.text;
      ++looked_at;
    }
  }
  EXPECT_GT(looked_at, 4U);
}

TEST(SweepChart, NamesBothAxes) {
  std::vector<std::string> titles;
  for (const XmlElement& text :
       named(chart_of(sweep_budgets(lenet(), {.points = 3})), "text", "axis-title")) {
    titles.push_back(text.text);
  }
  EXPECT_THAT(titles, ::testing::ElementsAre("budget of device memory", "step time relative to the oracle"));
}

std::vector<std::pair<double, double>> corners_of(const XmlElement& polyline) {
  std::istringstream text(polyline.attribute("points"));
  std::vector<std::pair<double, double>> corners;
  char comma = 0;
  for (double x = 0, y = 0; text >> x >> comma >> y;) {
    corners.emplace_back(x, y);
  }
  return corners;
}

// A plan also fits any larger budget, so a curve keeps the time of each point up to the next budget.
TEST(SweepChart, DrawsSteps) {
  const std::vector<XmlElement> chart = chart_of(sweep_budgets(lenet(), {.points = 6}));
  const std::vector<XmlElement> curves = named(chart, "polyline", "curve");
  ASSERT_FALSE(curves.empty());
  for (const XmlElement& curve : curves) {
    const auto corners = corners_of(curve);
    ASSERT_GE(corners.size(), 2U);
    for (std::size_t each = 0; each + 1 < corners.size(); ++each) {
      const auto [x, y] = corners[each];
      const auto [next_x, next_y] = corners[each + 1];
      EXPECT_TRUE(each % 2 == 0 ? y == next_y : x == next_x) << curve.attribute("points");
    }
  }
}

// In a budget in which everything fits, several policies have the same step time. Their circles and curves
// then differ in size, so that all remain visible.
TEST(SweepChart, ShowsAllPoliciesThatCoincide) {
  const Sweep sweep = sweep_budgets(
      lenet(), {.policies = {Policy::kOffloadNone, Policy::kDynamic, Policy::kOptimal}, .points = 3});
  const std::vector<XmlElement> chart = chart_of(sweep);
  std::set<std::string> radii;
  for (const char* const policy : {"none", "dyn", "optimal"}) {
    radii.insert(named(chart, "circle", policy).back().attribute("r"));
  }
  std::set<std::string> widths;
  for (const XmlElement& curve : named(chart, "polyline", "curve")) {
    widths.insert(curve.attribute("stroke-width"));
  }
  EXPECT_EQ(radii.size(), 3U);
  EXPECT_EQ(widths.size(), 3U);
}

// All precisions are drawn over the same two axes. Each precision has its own marks and dashes, whatever the
// policy.
TEST(SweepChart, ComparesPrecisions) {
  const Sweep sweep = in_fp32_and_bf16();
  const std::vector<XmlElement> chart = chart_of(sweep);
  const Axis budgets(named(chart, "text", "x"), "x", 0);
  const Axis times(named(chart, "text", "y"), "y", 4);
  for (const Policy policy : {Policy::kOptimal, Policy::kOffloadNone}) {
    for (const auto& [precision, mark] : {std::pair("fp32", "circle"), std::pair("bf16", "rect")}) {
      SCOPED_TRACE(to_string(policy) + " in " + precision);
      const std::vector<XmlElement> marks = named(chart, mark, to_string(policy));
      std::vector<SweepPoint> fitting;
      std::ranges::copy_if(
          sweep.points, std::back_inserter(fitting), [&, wanted = precision](const SweepPoint& point) {
            return point.approach == Approach(policy) && point.precision == wanted && point.fits;
          });
      ASSERT_FALSE(fitting.empty());
      ASSERT_EQ(marks.size(), fitting.size());
      for (std::size_t each = 0; each < marks.size(); ++each) {
        const double half = mark == std::string("rect") ? number(marks[each], "width") / 2 : 0;
        const double x = half > 0 ? number(marks[each], "x") + half : number(marks[each], "cx");
        const double y = half > 0 ? number(marks[each], "y") + half : number(marks[each], "cy");
        const double mebibytes = static_cast<double>(fitting[each].budget_bytes) / 1048576.0;
        EXPECT_NEAR(budgets.at(x) / mebibytes, 1, 2e-3);
        EXPECT_NEAR(times.at(y) / (1e3 * fitting[each].step_seconds), 1, 2e-3);
      }
    }
  }
}

TEST(SweepChart, SaysWhichPrecisionIsWhich) {
  const std::vector<XmlElement> chart = chart_of(in_fp32_and_bf16());
  EXPECT_THAT(named(chart, "title").front().text, HasSubstr("on sim:h100 (simulated), in fp32 and bf16"));
  std::vector<std::string> legend;
  for (const XmlElement& text : named(chart, "text", "legend")) {
    legend.push_back(text.text);
  }
  EXPECT_THAT(legend, ::testing::ElementsAre("optimal", "none", "fp32", "bf16", "no plan possible"));
  // The legend's line samples have the same dashes as the curves.
  std::set<std::string> curves;
  for (const XmlElement& curve : named(chart, "polyline", "curve")) {
    curves.insert(curve.attribute("stroke-dasharray"));
  }
  std::set<std::string> samples;
  for (const XmlElement& sample : named(chart, "line", "precision-sample")) {
    samples.insert(sample.attribute("stroke-dasharray"));
  }
  EXPECT_EQ(curves.size(), 2U);
  EXPECT_EQ(samples, curves);
  EXPECT_EQ(named(chart, "circle", "sample").size(), 1U);
  EXPECT_EQ(named(chart, "rect", "sample").size(), 1U);
}

// The edge of the shaded area is the smallest lower bound of all precisions.
TEST(SweepChart, ShadesWhatNoPrecisionCanReach) {
  const Sweep sweep = in_fp32_and_bf16();
  const std::vector<XmlElement> chart = chart_of(sweep);
  std::istringstream corners(named(chart, "polygon", "bound").front().attribute("points"));
  const Axis times(named(chart, "text", "y"), "y", 4);
  double highest = 0;  // in milliseconds
  double x = 0;
  double y = 0;
  char comma = 0;
  while (corners >> x >> comma >> y) {
    highest = std::max(highest, times.at(y));
  }
  const double of_least_budget = std::ranges::min(sweep.points, {}, [](const SweepPoint& point) {
                                   return std::pair(point.budget_bytes, point.lower_bound_step_seconds);
                                 }).lower_bound_step_seconds;
  EXPECT_NEAR(highest / (1e3 * of_least_budget), 1, 2e-3);
}

// No point is drawn outside the picture or inside the shaded area, which no plan can reach.
TEST(SweepChart, StaysAboveTheBound) {
  const std::vector<XmlElement> chart = chart_of(sweep_budgets(lenet(), {.points = 5}));
  const XmlElement& picture = chart.front();
  std::istringstream points(named(chart, "polygon", "bound").front().attribute("points"));
  std::vector<std::pair<double, double>> bound;
  double x = 0;
  double y = 0;
  char comma = 0;
  while (points >> x >> comma >> y) {
    EXPECT_LE(x, number(picture, "width"));
    bound.emplace_back(x, y);
  }
  for (const XmlElement& circle : named(chart, "circle")) {
    EXPECT_GT(number(circle, "cx"), 0);
    EXPECT_GT(number(circle, "cy"), 0);
    // y grows downwards, and the bound falls with more memory.
    for (const auto& [bound_x, bound_y] : bound) {
      if (bound_x >= number(circle, "cx")) {
        EXPECT_LE(number(circle, "cy"), bound_y + 0.01);
      }
    }
  }
}

// The chart of a coarse sweep shades nothing that a finer sweep reaches, not even between the budgets of the
// coarse sweep.
TEST(SweepChart, ShadesNothingThatIsPossibleBetweenPoints) {
  // The test sets the lower bounds: 0.9 of the oracle's time in the first budget, and 0.5 in all others.
  Sweep fine = sweep_budgets(lenet(), {.policies = {Policy::kOptimal}, .points = 40});
  for (std::size_t each = 0; each < fine.points.size(); ++each) {
    fine.points[each].lower_bound_step_seconds =
        fine.points[each].oracle_step_seconds * (each == 0 ? 0.9 : 0.5);
  }
  Sweep coarse = fine;
  coarse.points = {fine.points.front(), fine.points[fine.points.size() / 2], fine.points.back()};
  const std::uint64_t first = coarse.points.front().budget_bytes;
  const std::uint64_t last = coarse.points.back().budget_bytes;
  const std::vector<XmlElement> chart = chart_of(coarse);
  const auto x_of = [&](double bytes) {
    const double from = number(named(chart, "circle").front(), "cx");
    const double to = number(named(chart, "circle").back(), "cx");
    return from + std::log(bytes / static_cast<double>(first)) /
                      std::log(static_cast<double>(last) / static_cast<double>(first)) * (to - from);
  };
  const Axis times(named(chart, "text", "y"), "y", 4);
  std::vector<std::pair<double, double>> corners;
  std::istringstream bound(named(chart, "polygon", "bound").front().attribute("points"));
  double x = 0;
  double y = 0;
  char comma = 0;
  while (bound >> x >> comma >> y) {
    corners.emplace_back(x, y);
  }
  for (const SweepPoint& point : fine.points) {
    const double at = x_of(static_cast<double>(point.budget_bytes));
    for (std::size_t each = 0; each + 1 < corners.size(); ++each) {
      const auto [x1, y1] = corners[each];
      const auto [x2, y2] = corners[each + 1];
      if (x1 < at - 0.02 && at + 0.02 < x2) {
        const double shade = times.at(y1 + (y2 - y1) * (at - x1) / (x2 - x1));
        EXPECT_LE(shade, 1.002 * point.lower_bound_step_seconds / point.oracle_step_seconds);
      }
    }
  }
}

// The sweep has one budget, and the name of its device is not valid XML.
TEST(SweepChart, IsWellFormedWhateverTheNames) {
  Sweep sweep = sweep_budgets(
      lenet(), {.policies = {Policy::kOptimal}, .from_bytes = 1U << 30U, .to_bytes = 1U << 30U});
  ASSERT_EQ(sweep.points.size(), 1U);
  sweep.last.target.name = "sim:<a&b>\"\x01\xff.json";
  const std::vector<XmlElement> chart = chart_of(sweep);
  EXPECT_THAT(named(chart, "title").front().text, HasSubstr("sim:<a&b>\"??.json"));
  EXPECT_EQ(named(chart, "circle").size(), 1U);
}

// The reader refuses malformed XML; otherwise the tests above would not check it.
TEST(XmlReader, RefusesWhatIsNotWellFormed) {
  EXPECT_EQ(testing::XmlReader::read("<a b=\"1\">x<c/>&amp;</a>\n").front().text, "x&");
  for (const char* text : {"<a>", "<a></b>", "<a><b></a></b>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>",
                           "<a>&x;</a>", "<a/><b/>", "<a>&</a>", "<a b=\"<\"/>", "", "text"}) {
    EXPECT_THROW(testing::XmlReader::read(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace vdnn::sweep_chart_test
