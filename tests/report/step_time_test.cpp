#include "src/report/step_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/planned_run.h"

namespace vdnn {
namespace {

PlannedRun traced(const std::string& model, std::int64_t batch, Policy policy,
                  std::optional<std::uint64_t> memory_bytes = std::nullopt) {
  return plan_run({.model = {.model = model, .batch = batch},
                   .device = "sim:titan-x",
                   .memory_bytes = memory_bytes,
                   .policy = policy,
                   .trace_prediction = true});
}

// The times add up to the step, and they agree with the times that the device reports for its compute stream.
TEST(StepTime, AddsUpToTheStep) {
  for (const std::string model : {"fashion-vgg", "resnet20", "googlenet"}) {
    for (const Policy policy :
         {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
      SCOPED_TRACE(model + " " + to_string(policy));
      const PlannedRun run = traced(model, 32, policy);
      const StepTime time = step_time(run.schedule, run.prediction);
      EXPECT_NEAR(time.compute_seconds + time.recompute_seconds + time.stall_seconds,
                  run.prediction.step_seconds, 1e-9);
      EXPECT_NEAR(time.stall_seconds, run.prediction.stall_seconds, 1e-9);
      EXPECT_EQ(time.recompute_seconds, 0);
      double stalls = 0;
      for (std::size_t each = 0; each < time.stalls.size(); ++each) {
        stalls += time.stalls[each].seconds;
        EXPECT_NE(time.stalls[each].transfer, kNone) << each;
        EXPECT_TRUE(each == 0 || time.stalls[each].seconds <= time.stalls[each - 1].seconds);
      }
      EXPECT_NEAR(stalls, time.stall_seconds, 1e-12);
    }
  }
}

TEST(StepTime, KnowsWhatIsComputedAgain) {
  const std::uint64_t least = traced("resnet20", 64, Policy::kOptimal).smallest_peak_bytes;
  const PlannedRun run = traced("resnet20", 64, Policy::kOptimal, least);
  ASSERT_GT(recomputed_ops(run.schedule), 0U);
  const StepTime time = step_time(run.schedule, run.prediction);
  EXPECT_GT(time.recompute_seconds, 0);
  EXPECT_NEAR(time.compute_seconds + time.recompute_seconds + time.stall_seconds, run.prediction.step_seconds,
              1e-9);
}

// Under `all` the first layers of a step wait for their own offloads, as in the paper.
TEST(StepTime, NamesTheTransferThatIsWaitedFor) {
  const PlannedRun run = traced("fashion-vgg", 32, Policy::kOffloadAll);
  const StepTime time = step_time(run.schedule, run.prediction);
  ASSERT_FALSE(time.stalls.empty());
  const Instruction& worst = run.schedule.instructions[time.stalls.front().transfer];
  EXPECT_TRUE(worst.kind == InstructionKind::kOffload || worst.kind == InstructionKind::kPrefetch);
  const CopyTime copy = copy_time(time, run.prediction, time.stalls.front().transfer);
  EXPECT_GT(copy.seconds, 0);
  EXPECT_LT(copy.hidden_share, 1);
  EXPECT_GE(copy.hidden_share, 0);
  // A copy for which no work waits is hidden as a whole.
  for (std::uint32_t index = 0; index < run.schedule.instructions.size(); ++index) {
    const bool awaited = std::ranges::find(time.stalls, index, &StalledLaunch::transfer) != time.stalls.end();
    if (run.schedule.instructions[index].kind == InstructionKind::kOffload && !awaited) {
      EXPECT_EQ(copy_time(time, run.prediction, index).hidden_share, 1);
    }
  }
}

// By hand: an op of 2 s, a reduction of its gradient (3 s) beside another op of 1 s, and an update that waits
// for the reduction.
TEST(StepTime, ReductionsAreWaitedForAndNoComputing) {
  Schedule schedule;
  schedule.instructions = {{.kind = InstructionKind::kLaunch, .op = 0},
                           {.kind = InstructionKind::kLaunch, .stream = StreamRole::kReduce, .op = 1},
                           {.kind = InstructionKind::kLaunch, .op = 2},
                           {.kind = InstructionKind::kLaunch, .op = 3, .waits = {{.instruction = 1}}}};
  Prediction prediction{.step_seconds = 6};
  prediction.step =
      TracedStep{.begin_seconds = 10, .times = {{10, 12}, {12, 15}, {12, 13}, {15, 16}}, .placements = {}};
  const StepTime time = step_time(schedule, prediction);
  EXPECT_DOUBLE_EQ(time.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(time.stall_seconds, 2);
  ASSERT_EQ(time.stalls.size(), 1U);
  EXPECT_EQ(time.stalls[0].launch, 3U);
  EXPECT_EQ(time.stalls[0].transfer, 1U);
}

TEST(StepTime, OfSeveralDevicesNamesTheReduction) {
  RunOptions options{.model = {.model = "alexnet", .batch = 4},
                     .device = "sim:titan-x",
                     .policy = Policy::kOffloadNone,
                     .trace_prediction = true};
  options.training.ranks = 4;
  const PlannedRun run = plan_run(options);
  const StepTime time = step_time(run.schedule, run.prediction);
  EXPECT_NEAR(time.compute_seconds + time.stall_seconds, run.prediction.step_seconds, 1e-9);
  EXPECT_NEAR(time.stall_seconds, run.prediction.stall_seconds, 1e-9);
  ASSERT_FALSE(time.stalls.empty());
  ASSERT_NE(time.stalls.front().transfer, kNone);
  EXPECT_EQ(run.schedule.instructions[time.stalls.front().transfer].stream, StreamRole::kReduce);
}

// By hand: an op of 2 s, a fetch of 5 s that begins with the op, and an op of 1 s that needs the fetched
// value.
TEST(StepTime, ByHand) {
  Schedule schedule;
  schedule.instructions = {{.kind = InstructionKind::kLaunch, .op = 0},
                           {.kind = InstructionKind::kPrefetch, .stream = StreamRole::kPrefetch, .value = 0},
                           {.kind = InstructionKind::kRecompute, .op = 1, .waits = {{.instruction = 1}}}};
  Prediction prediction{.step_seconds = 6};
  EXPECT_THROW(step_time(schedule, prediction), InvalidArgument);
  prediction.step =
      TracedStep{.begin_seconds = 10, .times = {{10, 12}, {10, 15}, {15, 16}}, .placements = {}};
  const StepTime time = step_time(schedule, prediction);
  EXPECT_DOUBLE_EQ(time.compute_seconds, 2);
  EXPECT_DOUBLE_EQ(time.recompute_seconds, 1);
  EXPECT_DOUBLE_EQ(time.stall_seconds, 3);
  ASSERT_EQ(time.stalls.size(), 1U);
  EXPECT_EQ(time.stalls[0].launch, 2U);
  EXPECT_EQ(time.stalls[0].transfer, 1U);
  EXPECT_DOUBLE_EQ(time.stalls[0].begin_seconds, 12);
  const CopyTime copy = copy_time(time, prediction, 1);
  EXPECT_DOUBLE_EQ(copy.begin_seconds, 0);
  EXPECT_DOUBLE_EQ(copy.seconds, 5);
  EXPECT_DOUBLE_EQ(copy.hidden_share, 0.4);
}

}  // namespace
}  // namespace vdnn
