// Policies move bytes but do not change results. Budgets force real training on `cpu` under `optimal` to
// offload, to recompute, or to do both. The training uses the predicted memory, and ends with the bits of
// `none` with the same algorithms.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/train/training_runs.h"
#include "vdnn/size.h"

namespace vdnn::optimal_training_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  Dims input;  // empty: the model's own
};

class OptimalTraining : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint64_t kAmple = std::uint64_t{4} << 30U;

  // The algorithms are those of `none`, so that `optimal` only moves bytes.
  static RunOptions options(Policy policy, std::uint64_t budget = kAmple, std::uint64_t host = kAmple) {
    return RunOptions{.model = {.model = GetParam().model, .input = GetParam().input, .batch = 8},
                      .device = "cpu",
                      .memory_bytes = budget,
                      .host_memory_bytes = host,
                      .threads = 1,
                      .policy = policy,
                      .keep_algorithms = true,
                      .training = {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}}};
  }

  static std::string train(const PlannedRun& run) {
    const TrainingResult result = Trainer(run, testing::data_for(run, "synthetic"),
                                          {.learning_rate = 0.02F, .steps = 6, .session = {.seed = 7}})
                                      .train({});
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    return result.weights_sha256;
  }
};

TEST_P(OptimalTraining, EndsWithTheBitsOfNoneWhateverLeaves) {
  const PlannedRun none = plan_run(options(Policy::kOffloadNone));
  const std::string expected = train(none);
  const std::uint64_t floor = plan_run(options(Policy::kOptimal)).smallest_budget_bytes();
  const std::uint64_t peak = none.prediction.peak_bytes;
  ASSERT_LT(floor, peak);
  // Page-locked memory suffices for batches and results, but not for offloading.
  const std::uint64_t no_offload = none.prediction.host_bytes;
  std::size_t offloading = 0;
  std::size_t recomputing = 0;
  std::size_t mixing = 0;
  for (const std::uint64_t host : {kAmple, no_offload, no_offload + none.tape->feature_map_bytes() / 8}) {
    for (const std::uint64_t budget : {floor, floor + (peak - floor) / 3, floor + 2 * (peak - floor) / 3}) {
      const PlannedRun run = plan_run(options(Policy::kOptimal, budget, host));
      if (!run.fits()) {
        continue;
      }
      EXPECT_TRUE(ops_with_other_algorithms(run).empty());
      SCOPED_TRACE(format_size(budget) + ", page-locked " + format_size(host));
      EXPECT_EQ(train(run), expected);
      const bool offloads = !run.plan.transfers.empty();
      const bool recomputes = !run.plan.recomputations.empty();
      offloading += offloads && !recomputes ? 1 : 0;
      recomputing += recomputes && !offloads ? 1 : 0;
      mixing += offloads && recomputes ? 1 : 0;
    }
  }
  EXPECT_GT(offloading + mixing, 0U);
  EXPECT_GT(recomputing, 0U);
}

INSTANTIATE_TEST_SUITE_P(Networks, OptimalTraining,
                         ::testing::Values(Case{"FashionVgg", "fashion-vgg", {}},
                                           Case{"Resnet20", "resnet20", {}},
                                           Case{"Googlenet", "googlenet", {3, 64, 64}}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vdnn::optimal_training_test
