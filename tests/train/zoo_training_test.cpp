// Every network of the zoo that fits into a test trains on `cpu`. Under every policy, in the smallest budget
// and in a large one, some steps at a small size end with the same weights to the last bit. They use exactly
// the predicted memory. (vgg116 to vgg416 have 5 GiB of state at any input size; zoo_plan_test only plans
// them.)

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/extent.h"
#include "tests/train/training_runs.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

constexpr std::uint64_t kLarge = std::uint64_t{4} << 30;
const std::uint64_t kSteps = testing::extent({.usual = 4, .in_long_run = 10});

struct Case {
  std::string model;
  Dims input;
  std::int64_t batch = 2;
  // False for large models, which spend most of their time in the classifier. They run under every policy,
  // but only `all` runs in both budgets.
  bool every_budget = true;
  std::int64_t classes = 10;
};

std::ostream& operator<<(std::ostream& out, const Case& test) {
  return out << test.model << " " << to_string(test.input);
}

RunOptions options_of(const Case& test, Policy policy, std::uint64_t budget) {
  return {.model = {.model = test.model, .input = test.input, .classes = test.classes, .batch = test.batch},
          .device = "cpu",
          .memory_bytes = budget,
          .host_memory_bytes = kLarge,
          .threads = 1,
          .policy = policy,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F}}};
}

class ZooTraining : public ::testing::TestWithParam<Case> {};

TEST_P(ZooTraining, OneHashAndThePredictedPeakUnderEveryPolicyAndBudget) {
  std::set<std::string> hashes;
  for (const Policy policy : testing::kPolicies) {
    const std::uint64_t smallest = plan_run(options_of(GetParam(), policy, kLarge)).smallest_budget_bytes();
    for (const std::uint64_t budget : {smallest, kLarge}) {
      if (budget == kLarge && !GetParam().every_budget && policy != Policy::kOffloadAll) {
        continue;
      }
      SCOPED_TRACE(to_string(policy) + " in " + format_size(budget));
      const PlannedRun run = plan_run(options_of(GetParam(), policy, budget));
      const DatasetSplits data = testing::data_for(run, "synthetic");
      const TrainingResult result =
          Trainer(run, data, {.learning_rate = 0.001, .steps = kSteps, .session = {.seed = 3}}).train({});
      EXPECT_EQ(result.steps, kSteps);
      EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
      EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
      EXPECT_EQ(result.system_allocations_after_first_step, 0U);
      EXPECT_TRUE(std::isfinite(result.loss)) << result.loss;
      hashes.insert(result.weights_sha256);
    }
  }
  EXPECT_EQ(hashes.size(), 1U);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{{"alexnet", {3, 67, 67}, 2, false},
                                     {"overfeat", {3, 77, 77}, 1, false},
                                     {"vgg16", {3, 32, 32}, 2, false},
                                     {"vgg19", {3, 32, 32}, 2, false},
                                     {"googlenet", {3, 32, 32}},
                                     {"resnet18", {3, 32, 32}},
                                     {"resnet50", {3, 32, 32}, 2, false},
                                     {"resnet152", {3, 32, 32}, 2, false},
                                     {"resnet20", {3, 16, 16}},
                                     {"resnet56", {1, 12, 12}},
                                     {"resnet110", {3, 8, 8}},
                                     {"mobilenet", {3, 32, 32}},
                                     {"densenet121", {3, 32, 32}},
                                     {"unet", {1, 20, 28}},
                                     {"unet", {1, 12, 16, 20}, 1}};
  return all;
}

INSTANTIATE_TEST_SUITE_P(Small, ZooTraining, ::testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.model + "_" + to_string(test.param.input);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(ZooTrainingTest, LeavesOutTheDeepestOnly) {
  std::set<std::string> known{"lenet",  "fashion-vgg",  // in policies_test
                              "vgg116", "vgg216",      "vgg316", "vgg416"};
  for (const Case& test : cases()) {
    known.insert(test.model);
  }
  for (const std::string& model : model_names()) {
    EXPECT_TRUE(known.contains(model)) << model << " is not trained by any test";
  }
}

// --- memory of deep and large networks ---------------------------------------------------------------------

std::uint64_t baseline_peak(const RunOptions& options) {
  RunOptions baseline = options;
  baseline.policy = Policy::kBaseline;
  baseline.memory_bytes = kLarge;
  return plan_run(baseline).prediction.peak_bytes;
}

TrainingResult train(const PlannedRun& run, const std::string& data_name, std::uint64_t steps) {
  const DatasetSplits data = testing::data_for(run, data_name);
  return Trainer(run, data, {.learning_rate = 0.01, .steps = steps}).train({});
}

TEST(ZooTrainingTest, Resnet56TakesAFifthOfItsBaselineAtMost) {
  for (const Dims& input : {Dims{1, 28, 28}, Dims{3, 32, 32}}) {
    SCOPED_TRACE(to_string(input));
    const Case test{"resnet56", input, 128};
    RunOptions options = options_of(test, Policy::kOffloadAll, kLarge);
    options.threads = 2;
    options.memory_bytes = plan_run(options).smallest_budget_bytes();
    EXPECT_LE(*options.memory_bytes, baseline_peak(options) / 5);
    const PlannedRun all = plan_run(options);
    options.policy = Policy::kBaseline;
    options.memory_bytes = kLarge;
    const TrainingResult offloaded = train(all, "synthetic", 1);
    EXPECT_EQ(offloaded.peak_bytes, all.prediction.peak_bytes);
    EXPECT_EQ(train(plan_run(options), "synthetic", 1).weights_sha256, offloaded.weights_sha256);
  }
}

std::uint64_t largest_workspace(const PlannedRun& run) {
  std::uint64_t most = 0;
  for (OpId op = 0; op < run.tape->ops().size(); ++op) {
    most = std::max(most, run.tape->op(op).algorithms[run.plan.algorithms[op]].workspace_bytes);
  }
  return most;
}

TEST(ZooTrainingTest, Unet3DTakesAThirdOfItsBaselineAtMost) {
  const Case test{"unet", {1, 64, 64, 64}, 1, true, 2};
  RunOptions options = options_of(test, Policy::kOffloadAll, kLarge);
  options.threads = 2;
  options.memory_bytes = plan_run(options).smallest_budget_bytes();
  const PlannedRun run = plan_run(options);
  // The memory of oneDNN's own kernels depends on the processor: 54 MiB without AVX-512.
  const std::uint64_t workspace = largest_workspace(run);
  EXPECT_LT(*options.memory_bytes - workspace, (baseline_peak(options) - workspace) / 3);
  const TrainingResult result = train(run, "synthetic", kSteps);
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
  // Filter and data gradients are separate ops, so the input is already released when the data gradient runs.
  const auto ops = run.tape->ops();
  const auto is = [](const std::string& name) { return [name](const Op& op) { return op.name == name; }; };
  EXPECT_NE(std::ranges::find_if(ops, is("enc1_conv2.backward_filter")), ops.end());
  EXPECT_NE(std::ranges::find_if(ops, is("enc1_conv2.backward_data")), ops.end());
}

}  // namespace
}  // namespace vdnn
