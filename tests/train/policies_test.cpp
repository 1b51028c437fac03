// Policies and budgets move bytes but do not change results. For each network and preference of algorithms,
// some steps on real images run under every policy in three budgets each. They end with the same weights to
// the last bit, use exactly the predicted memory, and call the system's allocators in the first step only.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/extent.h"
#include "tests/train/training_runs.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;

const std::uint64_t kSteps = testing::extent({.usual = 10, .in_long_run = 50});

struct Case {
  const char* model;
  std::int64_t batch;
  AlgorithmPreference preference;
};

class PoliciesTest : public ::testing::TestWithParam<Case> {
 protected:
  static RunOptions options(Policy policy, std::uint64_t budget) {
    return {.model = {.model = GetParam().model, .batch = GetParam().batch},
            .device = "cpu",
            .memory_bytes = budget,
            .threads = 2,
            .policy = policy,
            .algorithms = GetParam().preference,
            .training = {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}}};
  }
  static std::uint64_t smallest_budget(Policy policy) {
    return plan_run(options(policy, std::uint64_t{4} << 30)).smallest_budget_bytes();
  }
};

TEST_P(PoliciesTest, OneHashAndThePredictedPeakUnderEveryPolicyAndBudget) {
  const DatasetSplits data =
      testing::data_for(plan_run(options(Policy::kOffloadNone, std::uint64_t{4} << 30)), "fashion-mnist");
  std::set<std::string> hashes;
  for (const Policy policy : testing::kPolicies) {
    const std::uint64_t smallest = smallest_budget(policy);
    for (const std::uint64_t budget : {smallest, smallest + smallest / 2, std::uint64_t{4} << 30}) {
      SCOPED_TRACE(to_string(policy) + " in " + format_size(budget));
      const PlannedRun run = plan_run(options(policy, budget));
      const TrainingResult result =
          Trainer(run, data, {.learning_rate = 0.02F, .steps = kSteps, .session = {.seed = 7}}).train({});
      EXPECT_EQ(result.steps, kSteps);
      EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
      EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
      EXPECT_EQ(result.system_allocations_after_first_step, 0U);
      hashes.insert(result.weights_sha256);
    }
  }
  EXPECT_EQ(hashes.size(), 1U);
}

TEST_P(PoliciesTest, OneGranuleLessThanTheSmallestBudgetIsRefusedWithTheFigure) {
  constexpr std::uint64_t kGranule = 64 * 1024;
  for (const Policy policy : testing::kPolicies) {
    SCOPED_TRACE(to_string(policy));
    const std::uint64_t smallest = smallest_budget(policy);
    const PlannedRun run = plan_run(options(policy, smallest - kGranule));
    EXPECT_FALSE(run.fits());
    const DatasetSplits data = testing::data_for(run, "synthetic");
    try {
      Trainer(run, data, {.steps = 1});
      ADD_FAILURE() << "fitted";
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), HasSubstr("(memory_bytes = " + std::to_string(smallest) + ")"));
    }
  }
}

// `dyn` runs with the algorithms of a run without offloading, in the budgets of the plans among which it
// chooses.
TEST_P(PoliciesTest, DynamicGivesTheBitsOfNone) {
  const std::uint64_t ample = std::uint64_t{4} << 30;
  const PlannedRun none = plan_run(options(Policy::kOffloadNone, ample));
  const DatasetSplits data = testing::data_for(none, "fashion-mnist");
  const TrainOptions training{.learning_rate = 0.02F, .steps = 10, .session = {.seed = 7}};
  const std::string hash = Trainer(none, data, training).train({}).weights_sha256;
  std::set<std::uint64_t> offloaded;
  for (const std::uint64_t budget :
       {ample, smallest_budget(Policy::kOffloadConv), smallest_budget(Policy::kOffloadAll)}) {
    SCOPED_TRACE(format_size(budget));
    RunOptions wish = options(Policy::kDynamic, budget);
    wish.keep_algorithms = true;
    const PlannedRun run = plan_run(wish);
    EXPECT_EQ(run.plan.options.policy, Policy::kDynamic);
    EXPECT_EQ(run.plan.algorithms, none.plan.algorithms);
    const TrainingResult result = Trainer(run, data, training).train({});
    EXPECT_EQ(result.weights_sha256, hash);
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    offloaded.insert(offload_bytes(*run.tape, run.schedule));
  }
  EXPECT_GT(offloaded.size(), 1U) << "some budgets require offloading";
}

INSTANTIATE_TEST_SUITE_P(NetworksAndPreferences, PoliciesTest,
                         ::testing::Values(Case{"lenet", 32, AlgorithmPreference::kPerformance},
                                           Case{"lenet", 32, AlgorithmPreference::kMemory},
                                           Case{"fashion-vgg", 16, AlgorithmPreference::kPerformance},
                                           Case{"fashion-vgg", 16, AlgorithmPreference::kMemory}),
                         [](const auto& test) {
                           const std::string model =
                               std::string(test.param.model) == "lenet" ? "Lenet" : "FashionVgg";
                           return model + (test.param.preference == AlgorithmPreference::kMemory
                                               ? "Memory"
                                               : "Performance");
                         });

}  // namespace
}  // namespace vdnn
