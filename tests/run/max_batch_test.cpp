#include "src/run/max_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/training_runs.h"
#include "vdnn/error.h"

namespace vdnn::max_batch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

MaxBatchOptions on_cpu(const std::string& model, std::optional<Policy> policy, std::uint64_t memory_bytes) {
  return {.run = {.model = {.model = model},
                  .device = "cpu",
                  .memory_bytes = memory_bytes,
                  .threads = 1,
                  .policy = policy}};
}
MaxBatchOptions on_titan(const std::string& model, std::optional<Policy> policy) {
  return {.run = {.model = {.model = model}, .device = "sim:titan-x", .policy = policy}};
}

PlannedRun plan_with_batch(RunOptions run, std::int64_t batch) {
  run.model.batch = batch;
  return plan_run(run);
}
void take_a_step(const PlannedRun& run) {
  Trainer(run, testing::data_for(run, "synthetic"), {.steps = 1}).train({});
}

std::int64_t batch_of(const LargestBatch& found) {
  return found.trial.run.batch();
}

TEST(MaxBatch, RunsAndOneSampleMoreDoesNot) {
  for (const Policy policy : testing::kPolicies) {
    for (const std::string model : {"lenet", "resnet20"}) {
      SCOPED_TRACE(model + " " + to_string(policy));
      const MaxBatchOptions options = on_cpu(model, policy, 16 * kMiB);
      const LargestBatch most = find_max_batch(options).most;
      EXPECT_TRUE(most.trial.accepted);
      EXPECT_EQ(most.next, batch_of(most) + 1);
      EXPECT_EQ(most.limit, BatchLimit::kDeviceMemory);
      EXPECT_NO_THROW(take_a_step(plan_with_batch(options.run, batch_of(most))));
      EXPECT_THROW(take_a_step(plan_with_batch(options.run, most.next)), OutOfMemory);
    }
  }
}

TEST(MaxBatch, IsAtLeastTheOneThatABudgetWasMadeFor) {
  for (const std::int64_t batch : {1, 2, 7, 16, 31}) {
    MaxBatchOptions options = on_cpu("lenet", Policy::kOffloadAll, 64 * kMiB);
    options.run.memory_bytes = plan_with_batch(options.run, batch).smallest_budget_bytes();
    std::vector<std::int64_t> seen;
    options.looking_at = [&](std::int64_t each) { seen.push_back(each); };
    const std::int64_t found = batch_of(find_max_batch(options).most);
    EXPECT_GE(found, batch);
    EXPECT_THAT(seen, AllOf(::testing::Contains(found), ::testing::Contains(found + 1)));
  }
}

TEST(MaxBatch, IsHeldBackByPageLockedMemoryToo) {
  MaxBatchOptions options = on_cpu("fashion-vgg", Policy::kOffloadAll, 64 * kMiB);
  const LargestBatch plenty = find_max_batch(options).most;
  options.run.host_memory_bytes = 8 * kMiB;
  const LargestBatch little = find_max_batch(options).most;
  EXPECT_LT(batch_of(little), batch_of(plenty));
  EXPECT_LE(little.trial.run.prediction.host_bytes, 8 * kMiB);
  EXPECT_EQ(little.limit, BatchLimit::kHostMemory);
  EXPECT_GT(plan_with_batch(options.run, little.next).prediction.host_bytes, 8 * kMiB);
}

// Without a limit, `auto` offloads as much as necessary; the limit bounds the slowdown.
TEST(MaxBatch, KeepsToTheOverheadThatWasAskedFor) {
  MaxBatchOptions options = on_titan("alexnet", std::nullopt);
  options.run.memory_bytes = std::uint64_t{2} << 30U;
  options.overhead = 0.02;
  const MaxBatch found = find_max_batch(options);
  ASSERT_GT(found.most.trial.overhead(), 0.02);
  const LargestBatch& within = found.within_overhead.value();
  EXPECT_LE(batch_of(found.without_offloading.value()), batch_of(within));
  EXPECT_LT(batch_of(within), batch_of(found.most));
  EXPECT_LE(within.trial.overhead(), 0.02);
  EXPECT_EQ(within.limit, BatchLimit::kOverhead);
  RunOptions next = options.run;
  next.model.batch = within.next;
  const PlannedRun slower = plan_run(next);
  EXPECT_TRUE(slower.fits());
  EXPECT_GT(slower.prediction.step_seconds / oracle_step_seconds(slower), 1.02);
}

// Regression: peak and step time of a row came from two plans, the smallest one and the one in the budget.
TEST(MaxBatch, SaysWhatPlanRunSaysOfEachRow) {
  MaxBatchOptions options = on_titan("alexnet", std::nullopt);
  options.run.memory_bytes = std::uint64_t{2} << 30U;
  const MaxBatch found = find_max_batch(options);
  for (const LargestBatch& row : {*found.without_offloading, *found.within_overhead, found.most}) {
    RunOptions same = options.run;
    same.model.batch = batch_of(row);
    same.policy = row.trial.run.plan.options.policy;
    const PlannedRun run = plan_run(same);
    EXPECT_TRUE(run.fits());
    EXPECT_EQ(run.prediction.peak_bytes, row.trial.run.prediction.peak_bytes);
    EXPECT_EQ(run.prediction.host_bytes, row.trial.run.prediction.host_bytes);
    EXPECT_EQ(run.prediction.step_seconds, row.trial.run.prediction.step_seconds);
  }
  EXPECT_EQ(found.without_offloading->trial.run.plan.options.policy, Policy::kOffloadNone);
}

// Regression: the search ended with the library's refusal of a batch that the user had not requested.
TEST(MaxBatch, ABatchThatALibraryRefusesIsTooLarge) {
  MaxBatchOptions options{.run = {.model = {.model = "vgg19"},
                                  .device = "sim:rtx4090",
                                  .memory_bytes = std::uint64_t{24} << 30U}};
  if (!plan_with_batch(options.run, 1).algorithms_source().starts_with("cudnn")) {
    GTEST_SKIP() << "built without cuDNN: no library refuses a batch";
  }
  const LargestBatch most = find_max_batch(options).most;
  EXPECT_EQ(most.limit, BatchLimit::kRefused);
  EXPECT_THAT(most.refusal, AllOf(HasSubstr("pool1"), HasSubstr("cuDNN indexes")));
  EXPECT_EQ(most.next, batch_of(most) + 1);
  EXPECT_THROW(plan_with_batch(options.run, most.next), InvalidArgument);
}

TEST(LeastMemory, IsEnoughForTheRateAndLittleLessIsNot) {
  MaxBatchOptions options = on_titan("alexnet", std::nullopt);
  constexpr double kRate = 1200;
  const BatchTrial found = find_least_memory(options, kRate);
  EXPECT_TRUE(found.run.fits());
  const auto rate = [](const PlannedRun& run) {
    return static_cast<double>(run.batch()) / run.prediction.step_seconds;
  };
  EXPECT_GE(rate(found.run), kRate);
  const std::uint64_t budget = found.run.target.budget_bytes;
  EXPECT_LT(budget, plan_again(found.run, Policy::kOffloadNone, budget).smallest_budget_bytes());
  const PlannedRun less = plan_again(found.run, Policy::kOptimal, budget * 94 / 100);
  EXPECT_TRUE(!less.fits() || rate(less) < kRate);
}

TEST(LeastMemory, IsRefusedWhereNoBatchIsSoFast) {
  MaxBatchOptions options = on_titan("lenet", std::nullopt);
  EXPECT_THROW(find_least_memory(options, 1e12), InvalidArgument);
  EXPECT_THROW(find_least_memory(options, 0), InvalidArgument);
  options.run.memory_bytes = kMiB;
  EXPECT_THROW(find_least_memory(options, 1), InvalidArgument);
}

std::string refusal(const MaxBatchOptions& options) {
  try {
    find_max_batch(options);
    return "found";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(MaxBatch, SaysWhatTheLeastOverheadIsWhereNoneIsSmallEnough) {
  MaxBatchOptions options = on_titan("vgg16", Policy::kOffloadAll);
  options.overhead = 0;
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("overhead = 0 %"), HasSubstr("the least overhead is ")));
  EXPECT_THROW(find_max_batch(options), InvalidArgument);
  options.overhead = -0.1;
  EXPECT_THAT(refusal(options), HasSubstr("must be at least 0 %"));
}

// --- for a global batch ------------------------------------------------------------------------------------

MaxBatchOptions of_four_devices(std::uint64_t memory_bytes) {
  MaxBatchOptions options = on_cpu("lenet", Policy::kOffloadNone, memory_bytes);
  options.run.training.ranks = 4;
  return options;
}

TEST(MicroBatch, IsTheLargestThatFitsAndDivides) {
  for (const std::uint64_t global : {4U, 240U, 1024U, 4U * 997U}) {
    SCOPED_TRACE(global);
    MaxBatchOptions options = of_four_devices(kMiB);
    options.run.training.micro_steps = 2;
    options.run.memory_bytes = plan_with_batch(options.run, 20).smallest_budget_bytes();
    const BatchTrial found = find_micro_batch(options, global);
    EXPECT_TRUE(found.accepted);
    EXPECT_EQ(found.run.global_batch(), global);
    const auto batch = static_cast<std::uint64_t>(found.run.batch());
    for (std::uint64_t larger = batch + 1; larger <= global / 4; ++larger) {
      if (global / 4 % larger == 0) {
        options.run.training.micro_steps = static_cast<std::uint32_t>(global / 4 / larger);
        EXPECT_FALSE(plan_with_batch(options.run, static_cast<std::int64_t>(larger)).fits()) << larger;
      }
    }
  }
}

TEST(MicroBatch, IsTheWholeShareWhereThatFits) {
  const BatchTrial found = find_micro_batch(of_four_devices(std::uint64_t{1} << 30U), 256);
  EXPECT_EQ(found.run.batch(), 64);
  EXPECT_EQ(found.run.options.training.micro_steps, 1U);
}

TEST(MicroBatch, IsRefusedWhereDevicesCannotShareOrNothingFits) {
  EXPECT_THROW(find_micro_batch(of_four_devices(8 * kMiB), 0), InvalidArgument);
  EXPECT_THROW(find_micro_batch(of_four_devices(8 * kMiB), 30), InvalidArgument);
  EXPECT_THROW(find_micro_batch(of_four_devices(kMiB), 32), OutOfMemory);
  MaxBatchOptions slow = on_titan("vgg16", Policy::kOffloadAll);
  slow.overhead = 0;
  EXPECT_THROW(find_micro_batch(slow, 8), InvalidArgument);
}

TEST(MaxBatch, IsRefusedWhereNotOneSampleFits) {
  EXPECT_THROW(find_max_batch(on_cpu("lenet", Policy::kOffloadAll, kMiB)), OutOfMemory);
  EXPECT_THROW(find_max_batch(on_cpu("no such model", std::nullopt, kMiB)), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::max_batch_test
