// The debugging aids of the `cpu` driver over whole steps. No op accesses released memory or undeclared bytes
// (a violation ends the process). The aids change nothing else.

#include <gtest/gtest.h>

#include <tuple>

#include "tests/train/training_runs.h"

namespace vdnn::debug_modes_test {
namespace {

class DebugModesTest : public ::testing::TestWithParam<std::tuple<const char*, Policy>> {
 protected:
  static TrainingResult run(bool page_aligned, const TrainOptions& train_options) {
    const auto& [model, policy] = GetParam();
    const RunOptions options{.model = {.model = model, .batch = 4},
                             .device = "cpu",
                             .memory_bytes = std::uint64_t{1} << 30,
                             .threads = 2,
                             .policy = policy,
                             .training = {.optimizer = SgdSpec{.momentum = 0.9F}},
                             .page_aligned_blocks = page_aligned};
    const PlannedRun planned = plan_run(options);
    const DatasetSplits data = testing::data_for(planned, "synthetic");
    TrainingResult result = Trainer(planned, data, train_options).train({});
    EXPECT_EQ(result.peak_bytes, planned.prediction.peak_bytes);
    return result;
  }
  static std::string undisturbed_hash() { return run(false, {.steps = 3}).weights_sha256; }
};

TEST_P(DebugModesTest, ReleasedMemoryIsNotTouched) {
  EXPECT_EQ(run(true, {.steps = 3, .session = {.protect_released = true}}).weights_sha256,
            undisturbed_hash());
}

TEST_P(DebugModesTest, OpsTouchWhatTheyDeclareAndNothingElse) {
  EXPECT_EQ(run(true, {.steps = 3, .session = {.check_accesses = true}}).weights_sha256, undisturbed_hash());
}

TEST_P(DebugModesTest, BothAtOnce) {
  EXPECT_EQ(
      run(true, {.steps = 3, .session = {.protect_released = true, .check_accesses = true}}).weights_sha256,
      undisturbed_hash());
}

INSTANTIATE_TEST_SUITE_P(NetworksAndPolicies, DebugModesTest,
                         ::testing::Combine(::testing::Values("lenet", "fashion-vgg"),
                                            ::testing::ValuesIn(testing::kPolicies)),
                         [](const auto& test) {
                           const std::string model = std::get<0>(test.param);
                           return (model == "lenet" ? "Lenet_" : "FashionVgg_") +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace vdnn::debug_modes_test
