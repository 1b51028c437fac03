// Random delays in the streams of `cpu` produce orders that never occur on an idle machine. Results must not
// change.

#include <gtest/gtest.h>

#include "tests/train/training_runs.h"

namespace vdnn::delays_test {
namespace {

class DelaysTest : public ::testing::TestWithParam<Policy> {
 protected:
  static std::string hash(std::optional<std::uint64_t> delay_seed) {
    RunOptions options;
    options.model.model = "lenet";
    options.model.batch = 8;
    options.device = "cpu";
    options.memory_bytes = std::uint64_t{1} << 30;
    options.threads = 1;
    options.policy = GetParam();
    const PlannedRun run = plan_run(options);
    const DatasetSplits data = testing::data_for(run, "synthetic");
    return Trainer(run, data, {.steps = 5, .session = {.delay_seed = delay_seed}}).train({}).weights_sha256;
  }
};

TEST_P(DelaysTest, ChangeNothing) {
  const std::string undisturbed = hash(std::nullopt);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(hash(seed), undisturbed) << "delay seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, DelaysTest, ::testing::ValuesIn(testing::kPolicies),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace vdnn::delays_test
