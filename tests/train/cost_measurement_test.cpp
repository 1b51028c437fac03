// Real measurements of costs, on `cpu` and on a fake GPU. The times depend on the machine; the tests check
// that each algorithm of each op has one.

#include "vdnn/cost_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fakes/fake_gpus.h"
#include "tests/report/json_schema.h"
#include "tests/temporary_directory.h"
#include "tests/train/training_runs.h"
#include "vdnn/error.h"

namespace vdnn::cost_measurement_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunOptions options(const std::string& model, std::int64_t batch) {
  return {.model = {.model = model, .batch = batch}, .device = "cpu", .threads = 1};
}

// Expects a time for every op with every algorithm.
void expect_complete(const MeasuredCosts& costs, const PlannedRun& run, std::size_t steps) {
  EXPECT_EQ(costs.setting, run.measured_setting());
  EXPECT_EQ(costs.ops.size(), run.tape->ops().size());
  for (const Op& op : run.tape->ops()) {
    const auto times = costs.ops.find(op.name);
    ASSERT_NE(times, costs.ops.end()) << op.name;
    EXPECT_EQ(times->second.size(), op.algorithms.size()) << op.name;
    for (const Algorithm& algorithm : op.algorithms) {
      const auto time = times->second.find(algorithm.name);
      ASSERT_NE(time, times->second.end()) << op.name << " " << algorithm.name;
      ASSERT_TRUE(time->second) << op.name << " " << algorithm.name;
      EXPECT_GT(time->second->seconds, 0);
      EXPECT_GE(time->second->launches, steps);
    }
  }
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/measured_costs.schema.json");
  EXPECT_THAT(testing::SchemaCheck::errors(schema, testing::Json::parse(to_text(costs))), IsEmpty());
}

TEST(CostMeasurement, NamesEveryOpWithEveryAlgorithm) {
  for (const std::string model : {"lenet", "fashion-vgg", "resnet20"}) {
    SCOPED_TRACE(model);
    const PlannedRun run = plan_run(options(model, 4));
    std::size_t choices = 0;
    expect_complete(
        measure_costs(run, {.steps = 5, .progress = [&](std::size_t launches) { choices += launches; }}), run,
        5);
    std::size_t algorithms = 0;
    for (const Op& op : run.tape->ops()) {
      algorithms += op.algorithms.size();
    }
    EXPECT_EQ(choices, algorithms) << "each once";
  }
}

// With one sample, workspaces are larger than feature maps. The largest workspaces and the peak together
// exceed the budget.
TEST(CostMeasurement, LeavesOutWhatDoesNotFit) {
  RunOptions wish = options("lenet", 1);
  wish.policy = Policy::kOffloadAll;
  wish.algorithms = AlgorithmPreference::kMemory;
  wish.memory_bytes = plan_run(wish).smallest_budget_bytes();
  const PlannedRun run = plan_run(wish);
  const MeasuredCosts costs = measure_costs(run, {.steps = 5});
  std::size_t measured = 0;
  std::size_t left_out = 0;
  for (const Op& op : run.tape->ops()) {
    const auto& times = costs.ops.at(op.name);
    EXPECT_TRUE(std::ranges::any_of(times, [](const auto& time) { return time.second.has_value(); }));
    for (const Algorithm& algorithm : op.algorithms) {
      const bool there = times.at(algorithm.name).has_value();
      measured += there ? 1 : 0;
      left_out += there ? 0 : 1;
      EXPECT_TRUE(there || algorithm.workspace_bytes > 0) << op.name << " " << algorithm.name;
    }
  }
  EXPECT_GE(measured, run.tape->ops().size());
  EXPECT_GT(left_out, 0U);

  wish.memory_bytes = *wish.memory_bytes / 2;
  EXPECT_THROW(measure_costs(plan_run(wish), {.steps = 5}), OutOfMemory);
}

TEST(CostMeasurement, WantsARealDeviceAndEnoughSteps) {
  RunOptions simulated = options("lenet", 4);
  simulated.device = "sim:cpu";
  try {
    measure_costs(plan_run(simulated));
    FAIL() << "measured";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("not on sim:cpu"));
  }
  EXPECT_THROW(measure_costs(plan_run(options("lenet", 4)), {.steps = 4}), InvalidArgument);
}

class ProfiledTraining : public testing::TemporaryDirectory {};

// A profile only chooses algorithms, so a run with these algorithms and no profile has the same weights bit
// for bit.
TEST_F(ProfiledTraining, HasTheWeightsThatItsAlgorithmsHave) {
  RunOptions profiled = options("fashion-vgg", 8);
  write("profile.json", to_text(measure_costs(plan_run(profiled), {.steps = 5})));
  profiled.profile = directory_ / "profile.json";
  const PlannedRun with = plan_run(profiled);
  RunOptions recorded = options("fashion-vgg", 8);
  for (OpId id = 0; id < with.tape->ops().size(); ++id) {
    const Op& op = with.tape->op(id);
    recorded.recorded_algorithms.emplace(op.name, op.algorithms[with.plan.algorithms[id]].name);
  }
  const auto weights = [](const PlannedRun& run) {
    return Trainer(run, testing::data_for(run, "synthetic"), {.steps = 3}).train({}).weights_sha256;
  };
  EXPECT_EQ(weights(with), weights(plan_run(recorded)));
}

TEST(CostMeasurement, WorksThroughTheInterfacesThatAGpuHas) {
  const auto cuda = std::make_shared<FakeCuda>();
  RunOptions wish = options("lenet", 4);
  wish.device = "cuda:0";
  wish.gpus = testing::make_fake_gpus(cuda);
  const PlannedRun run = plan_run(wish);
  const MeasuredCosts costs = measure_costs(run, {.steps = 5});
  expect_complete(costs, run, 5);
  EXPECT_EQ(costs.setting.device, "Fake GPU 0");
  EXPECT_THAT(cuda->misuses(), IsEmpty());
}

}  // namespace
}  // namespace vdnn::cost_measurement_test
