#include "src/report/live_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "src/report/pages.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StepReport step(std::uint64_t number) {
  return {.step = number,
          .steps = 25,
          .steps_per_epoch = 10,
          .loss = 2.5,
          .images = 64,
          .images_per_second = number > 1 ? 1000.0 : 0.0,
          .stall_seconds = 0.25,
          .stall_fraction = 0.125,
          .memory_bytes = 1024,
          .peak_bytes = 4096};
}

TrainingMetrics measured() {
  TrainingMetrics metrics{
      .model = "lenet", .device = "cpu", .policy = "all", .ranks = 2, .budget_bytes = 8192};
  for (std::uint64_t number = 11; number <= 12; ++number) {
    add_step(metrics, step(number));
  }
  return metrics;
}

TEST(LiveMetricsTest, AreWrittenAsPrometheusReadsThem) {
  EXPECT_EQ(to_prometheus(measured()),
            R"(# HELP vdnn_training_info Always 1; the labels name model, device and policy.
# TYPE vdnn_training_info gauge
vdnn_training_info{model="lenet",device="cpu",policy="all"} 1
# HELP vdnn_steps_total Steps that this process has completed.
# TYPE vdnn_steps_total counter
vdnn_steps_total 2
# HELP vdnn_images_total Images that these steps have trained on, of all ranks.
# TYPE vdnn_images_total counter
vdnn_images_total 128
# HELP vdnn_stall_seconds_total Time that the compute stream has waited for copies, over the steps that the device has timed.
# TYPE vdnn_stall_seconds_total counter
vdnn_stall_seconds_total 0.5
# HELP vdnn_step Completed steps since the start of the training, including those before a checkpoint.
# TYPE vdnn_step gauge
vdnn_step 12
# HELP vdnn_planned_steps Steps of the whole training.
# TYPE vdnn_planned_steps gauge
vdnn_planned_steps 25
# HELP vdnn_epoch Epoch of the last completed step, from 1.
# TYPE vdnn_epoch gauge
vdnn_epoch 2
# HELP vdnn_planned_epochs Epochs of the whole training, the last one perhaps incomplete.
# TYPE vdnn_planned_epochs gauge
vdnn_planned_epochs 3
# HELP vdnn_loss Loss of the last completed step.
# TYPE vdnn_loss gauge
vdnn_loss 2.5
# HELP vdnn_images_per_second Images per second in the last completed step, of all ranks.
# TYPE vdnn_images_per_second gauge
vdnn_images_per_second 1000
# HELP vdnn_stall_ratio Share of the last step in which the compute stream waited for copies.
# TYPE vdnn_stall_ratio gauge
vdnn_stall_ratio 0.125
# HELP vdnn_memory_bytes Committed device memory.
# TYPE vdnn_memory_bytes gauge
vdnn_memory_bytes 1024
# HELP vdnn_memory_peak_bytes Largest committed device memory so far.
# TYPE vdnn_memory_peak_bytes gauge
vdnn_memory_peak_bytes 4096
# HELP vdnn_memory_budget_bytes Budget of device memory.
# TYPE vdnn_memory_budget_bytes gauge
vdnn_memory_budget_bytes 8192
# HELP vdnn_ranks Processes that train together.
# TYPE vdnn_ranks gauge
vdnn_ranks 2
)");
}

TEST(LiveMetricsTest, ThatWereNotMeasuredAreLeftOut) {
  TrainingMetrics before_the_first_step{.model = "lenet", .budget_bytes = 8192};
  set_step(before_the_first_step, 0, 25, 10);
  const std::string text = to_prometheus(before_the_first_step);
  for (const std::string name : {"vdnn_loss", "vdnn_images_per_second", "vdnn_stall", "vdnn_loss_scale",
                                 "vdnn_epoch", "vdnn_memory_bytes", "vdnn_memory_peak_bytes"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
  EXPECT_THAT(text, AllOf(HasSubstr("\nvdnn_step 0\n"), HasSubstr("\nvdnn_planned_steps 25\n")));
  TrainingMetrics metrics = measured();
  StepReport scaled = step(13);
  scaled.loss_scaling = {.scale = 65536, .skipped = false, .skipped_steps = 3};
  add_step(metrics, scaled);
  EXPECT_THAT(to_prometheus(metrics), HasSubstr("\nvdnn_loss_scale 65536\n"));
  EXPECT_THAT(to_prometheus(metrics), HasSubstr("\nvdnn_skipped_steps_total 3\n"));
}

// The server already runs while the network is planned, when no metrics exist yet.
TEST(LiveMetricsTest, AreNoneBeforeTheStart) {
  LiveMetrics live;
  EXPECT_EQ(to_prometheus(live.latest()), "");
  EXPECT_EQ(live.to_json().dump(), "{}");
  live.start(measured());
  EXPECT_EQ(to_prometheus(live.latest()), to_prometheus(measured()));
}

// If the device has timed no step, there is no sum of stalls; it is not 0.
TEST(LiveMetricsTest, HaveStallsWhereStepsAreTimed) {
  TrainingMetrics metrics;
  StepReport untimed = step(1);
  untimed.stall_seconds.reset();
  add_step(metrics, untimed);
  EXPECT_EQ(metrics.stall_seconds, std::nullopt);
  add_step(metrics, step(2));
  add_step(metrics, untimed);
  EXPECT_EQ(metrics.stall_seconds, 0.25);
}

TEST(LiveMetricsTest, CountTheStepsOfACheckpoint) {
  TrainingMetrics metrics;
  set_step(metrics, 20, 25, 10);
  EXPECT_THAT(to_prometheus(metrics),
              AllOf(HasSubstr("\nvdnn_step 20\n"), HasSubstr("\nvdnn_steps_total 0\n"),
                    HasSubstr("\nvdnn_epoch 2\n"), HasSubstr("\nvdnn_planned_epochs 3\n")));
}

TEST(LiveMetricsTest, HaveNamesAndTypesByTheRules) {
  TrainingMetrics metrics = measured();
  metrics.loss_scale = 2;
  std::istringstream text(to_prometheus(metrics));
  const std::regex type("# TYPE (vdnn_[a-z_]+) (gauge|counter)");
  std::set<std::string> names;
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (std::regex_match(line, match, type)) {
      const std::string name = match[1];
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(match[2] == "counter", name.ends_with("_total")) << name;
    }
  }
  EXPECT_EQ(names.size(), 17U);
}

TEST(LiveMetricsTest, MayBeInfiniteOrNan) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(to_prometheus(TrainingMetrics{.loss = kInfinity}), HasSubstr("\nvdnn_loss +Inf\n"));
  EXPECT_THAT(to_prometheus(TrainingMetrics{.loss = -kInfinity}), HasSubstr("\nvdnn_loss -Inf\n"));
  EXPECT_THAT(to_prometheus(TrainingMetrics{.loss = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("\nvdnn_loss NaN\n"));
  LiveMetrics live;
  live.publish({.step = 1, .loss = kInfinity});
  EXPECT_EQ(live.to_json()["loss"], "+Inf");  // null would mean that the loss was not measured
  EXPECT_EQ(live.to_json()["history"].dump(), "[[1,null,null,null,null]]");
  EXPECT_EQ(live.to_json()["ranges"]["loss"].dump(), "[null,null]");
}

TEST(LiveMetricsTest, EscapeLabels) {
  EXPECT_THAT(to_prometheus(TrainingMetrics{.device = "a\"b\\c\nd"}), HasSubstr(R"(device="a\"b\\c\nd")"));
}

TEST(MetricsHistoryTest, KeepsEvenlySpacedPointsOfTheWholeTraining) {
  MetricsHistory history(8);
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    history.add({.step = number});
    const auto& points = history.points();
    ASSERT_LE(points.size(), 8U);
    ASSERT_EQ(points.front().step, 1U);
    for (std::size_t i = 2; i < points.size(); ++i) {
      ASSERT_EQ(points[i].step - points[i - 1].step, points[1].step - points[0].step) << number;
    }
    // The last point is less than one space before the last step.
    const std::uint64_t space = points.size() > 1 ? points[1].step - points[0].step : 1;
    ASSERT_LT(number - points.back().step, space);
  }
  EXPECT_GT(history.points().size(), 4U);
}

TEST(MetricsHistoryTest, HasTheRangesOfAllSteps) {
  MetricsHistory history(2);
  for (std::uint64_t number = 1; number <= 100; ++number) {
    history.add({.step = number, .loss = number == 50 ? 9.0 : 1.0, .memory_bytes = 1024});
  }
  for (const MetricsPoint& point : history.points()) {
    EXPECT_EQ(point.loss, 1);  // the history keeps some steps only, and not step 50
  }
  EXPECT_EQ(history.ranges().loss.least, 1);
  EXPECT_EQ(history.ranges().loss.greatest, 9);
  EXPECT_EQ(history.ranges().memory_bytes.greatest, 1024);
  EXPECT_EQ(history.ranges().stall_fraction.least, std::nullopt);
}

// Regression: the history ended with its last evenly spaced step, although later steps had been published.
TEST(LiveMetricsTest, HaveAHistoryThatEndsWithTheLastStep) {
  LiveMetrics live;
  for (std::uint64_t number = 1; number <= 2000; ++number) {
    live.publish({.step = number, .loss = 1.0 / static_cast<double>(number)});
    if (number % 17 != 0) {
      continue;
    }
    const auto history = live.to_json()["history"];
    ASSERT_EQ(history.back()[0], number);
    ASSERT_EQ(history.back()[1], 1.0 / static_cast<double>(number));
    ASSERT_LE(history.size(), 513U);
  }
}

TEST(MetricsHistoryTest, RefusesACapacityThatCannotBeHalved) {
  EXPECT_THROW(MetricsHistory(0), InvalidArgument);
  EXPECT_THROW(MetricsHistory(7), InvalidArgument);
}

TEST(LiveMetricsTest, AreWholeAndInOrderWhileStepsArePublished) {
  LiveMetrics live;
  live.start({});  // latest() is empty before this call
  std::atomic<bool> done = false;
  std::jthread reader([&] {
    std::uint64_t last = 0;
    while (!done) {
      const TrainingMetrics metrics = live.latest().value();
      EXPECT_EQ(metrics.images, 2 * metrics.step);
      EXPECT_GE(metrics.step, last);
      last = metrics.step;
      const auto json = live.to_json();
      for (std::size_t i = 1; i < json["history"].size(); ++i) {
        EXPECT_LT(json["history"][i - 1][0], json["history"][i][0]);
      }
    }
  });
  std::uint64_t number = 1;
  for (; number <= 20'000; ++number) {
    live.publish({.images = 2 * number, .step = number});
  }
  done = true;
  reader.join();
  // A step is not published while a reader holds the lock; publish() of the next step makes up for it.
  live.publish({.images = 2 * number, .step = number});
  ASSERT_TRUE(live.latest());
  EXPECT_EQ(live.latest()->step, number);
  EXPECT_EQ(live.to_json()["history"][1][0], 65);
}

TEST(LivePageTest, DrawsWhatThereIs) {
  LiveMetrics live;
  live.publish(measured());
  const auto json = live.to_json();
  const std::string page(live_page());
  const std::regex use("[^\"]\\bm(?:etrics)?\\.([a-z_]+)\\b");
  std::set<std::string> used;
  for (std::sregex_iterator match(page.begin(), page.end(), use); match != std::sregex_iterator(); ++match) {
    used.insert((*match)[1]);
  }
  EXPECT_GT(used.size(), 12U);
  for (const std::string& key : used) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const auto& column : json["history_columns"]) {
    EXPECT_EQ(json["history"][0].size(), json["history_columns"].size());
    if (column != "step") {
      EXPECT_THAT(page, HasSubstr("\"" + column.get<std::string>() + "\""));
    }
  }
  EXPECT_THAT(page, Not(HasSubstr("https://")));
}

}  // namespace
}  // namespace vdnn
