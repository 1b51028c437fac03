#include "src/train/max_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/training_runs.h"
#include "vdnn/error.h"

namespace vdnn {
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

TEST(MaxBatch, RunsAndOneSampleMoreDoesNot) {
  for (const Policy policy : testing::kPolicies) {
    for (const std::string model : {"lenet", "resnet20"}) {
      SCOPED_TRACE(model + " " + to_string(policy));
      const MaxBatchOptions options = on_cpu(model, policy, 16 * kMiB);
      const MaxBatch found = find_max_batch(options);
      const std::int64_t batch = found.largest.run.network.batch();
      EXPECT_TRUE(found.largest.accepted);
      EXPECT_FALSE(found.next.accepted);
      EXPECT_EQ(found.next.run.network.batch(), batch + 1);
      EXPECT_NO_THROW(take_a_step(plan_with_batch(options.run, batch)));
      EXPECT_THROW(take_a_step(plan_with_batch(options.run, batch + 1)), OutOfMemory);
    }
  }
}

TEST(MaxBatch, IsAtLeastTheOneThatABudgetWasMadeFor) {
  for (const std::int64_t batch : {1, 2, 7, 16, 31}) {
    MaxBatchOptions options = on_cpu("lenet", Policy::kOffloadAll, 64 * kMiB);
    options.run.memory_bytes = plan_with_batch(options.run, batch).smallest_budget_bytes();
    std::vector<std::int64_t> tried;
    options.tried = [&](const BatchTrial& trial) { tried.push_back(trial.run.network.batch()); };
    const std::int64_t found = find_max_batch(options).largest.run.network.batch();
    EXPECT_GE(found, batch);
    EXPECT_THAT(tried, AllOf(::testing::Contains(found), ::testing::Contains(found + 1)));
    EXPECT_LE(tried.size(), 12U);
  }
}

TEST(MaxBatch, IsHeldBackByPageLockedMemoryToo) {
  MaxBatchOptions options = on_cpu("fashion-vgg", Policy::kOffloadAll, 64 * kMiB);
  const MaxBatch plenty = find_max_batch(options);
  options.run.host_memory_bytes = 8 * kMiB;
  const MaxBatch little = find_max_batch(options);
  EXPECT_LT(little.largest.run.network.batch(), plenty.largest.run.network.batch());
  EXPECT_LE(little.largest.run.prediction.host_bytes, 8 * kMiB);
  EXPECT_GT(little.next.run.prediction.host_bytes, 8 * kMiB);
}

// By itself, `auto` offloads as much as it takes; what it gives for that is limited.
TEST(MaxBatch, KeepsToTheOverheadThatWasAskedFor) {
  MaxBatchOptions options = on_titan("alexnet", std::nullopt);
  options.run.memory_bytes = std::uint64_t{2} << 30U;
  const MaxBatch free = find_max_batch(options);
  ASSERT_GT(free.largest.overhead(), 0.02);
  options.overhead = 0.02;
  const MaxBatch limited = find_max_batch(options);
  EXPECT_LT(limited.largest.run.network.batch(), free.largest.run.network.batch());
  EXPECT_LE(limited.largest.overhead(), 0.02);
  EXPECT_TRUE(limited.next.run.fits());
  EXPECT_GT(limited.next.overhead(), 0.02);
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
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("--overhead 0 %"), HasSubstr("the least is ")));
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
    const auto batch = static_cast<std::uint64_t>(found.run.network.batch());
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
  EXPECT_EQ(found.run.network.batch(), 64);
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
}  // namespace vdnn
