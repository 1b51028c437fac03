// Learned steps of foreign programs are planned, checked, predicted and run on simulated devices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/run/max_batch.h"
#include "src/run/sweep.h"
#include "tests/plan/random_step.h"
#include "vdnn/checker.h"
#include "vdnn/device_pool.h"
#include "vdnn/error.h"
#include "vdnn/executor.h"
#include "vdnn/learned_step.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/planned_run.h"
#include "vdnn/session.h"
#include "vdnn/size.h"

namespace vdnn::planned_step_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kStepMiB;
using testing::peak_of;
using testing::RandomStep;
using testing::small_step;

constexpr std::uint64_t kSeeds = 40;

RunOptions options_of(LearnedStep step, Policy policy, const std::string& device = "sim:titan-x") {
  const std::int64_t batch = batch_of(step);
  return {.model = {.batch = batch},
          .step = std::make_shared<const LearnedStep>(std::move(step)),
          .device = device,
          .policy = policy};
}

LearnedStep example(const std::string& name) {
  return read_learned_step(std::string(VDNN_STEPS_DIRECTORY) + "/" + name + ".json");
}

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
    return "accepted";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

// Runs three steps of the schedule on a device with this budget, with the test's own executor. Returns the
// committed bytes.
std::uint64_t committed_by(const PlannedRun& run, std::uint64_t budget_bytes) {
  const auto device = make_sim_device({.profile = run.target.profile,
                                       .budget_bytes = budget_bytes,
                                       .host_budget_bytes = std::uint64_t{1} << 40U});
  DevicePool pool(*device, {});
  PinnedPool pinned(*device);
  const StreamSet streams(*device, stream_roles(*run.tape));
  ParameterStore parameters(pool, streams[StreamRole::kCompute], *run.tape);
  Executor executor({.device = *device,
                     .pool = pool,
                     .pinned = pinned,
                     .streams = streams,
                     .parameters = parameters,
                     .tape = *run.tape,
                     .schedule = run.schedule});
  for (int step = 0; step < 3; ++step) {
    executor.wait(executor.submit({}, {}));
  }
  return device->counters().peak_committed_bytes;
}

// Checks that hold for any plan of a step.
void judge(const PlannedRun& run, const std::string& what) {
  EXPECT_THAT(check_schedule(*run.tape, run.schedule), IsEmpty()) << what;
  EXPECT_EQ(recomputed_ops(run.schedule), 0U) << what;
  const std::uint64_t peak = run.prediction.peak_bytes;
  EXPECT_EQ(committed_by(run, peak), peak) << what;
  EXPECT_THROW(committed_by(run, peak - run.target.profile.granule_bytes), OutOfMemory) << what;
}

TEST(PlannedStep, PeakAndTimeOfNoneAreThoseRecorded) {
  const PlannedRun run = plan_run(options_of(small_step(), Policy::kOffloadNone));
  EXPECT_EQ(run.prediction.peak_bytes, small_step().peak_bytes)
      << "whole granules without gaps between blocks";
  EXPECT_NEAR(run.prediction.step_seconds, small_step().seconds, 1e-9);
  EXPECT_EQ(run.prediction.host_bytes, 0U);
  judge(run, "none");
}

TEST(PlannedStep, PeaksOfTheExamplesAreThoseRecordedInWholeGranules) {
  for (const char* name : {"resnet18", "unet"}) {
    const LearnedStep step = example(name);
    const PlannedRun run = plan_run(options_of(step, Policy::kOffloadNone));
    EXPECT_EQ(run.prediction.peak_bytes, round_up(step.peak_bytes, run.target.profile.granule_bytes)) << name;
    EXPECT_NEAR(run.prediction.step_seconds, step.seconds, 1e-9) << name;
  }
}

TEST(PlannedStep, PlansAreValidAndTakeWhatIsPredicted) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const LearnedStep step = RandomStep(seed).build();
    const PlannedRun none = plan_run(options_of(step, Policy::kOffloadNone, "sim:cpu"));
    judge(none, "none, seed " + std::to_string(seed));
    EXPECT_GE(none.prediction.peak_bytes, step.peak_bytes);
    judge(plan_again(none, Policy::kOffloadAll, none.target.budget_bytes),
          "all, seed " + std::to_string(seed));
    const PlannedRun optimal = plan_again(none, Policy::kOptimal, 1);
    judge(plan_again(none, Policy::kOptimal, optimal.smallest_budget_bytes()),
          "optimal, seed " + std::to_string(seed));
    EXPECT_LE(optimal.smallest_budget_bytes(), none.smallest_budget_bytes()) << "seed " << seed;
  }
}

// The program holds the encoder's feature maps that the decoder concatenates. While the program holds them,
// offloading them frees no memory.
TEST(PlannedStep, OffloadingLowersThePeakOfAUnetInItsBudget) {
  const PlannedRun none = plan_run(options_of(example("unet"), Policy::kOffloadNone));
  const PlannedRun least = plan_again(none, Policy::kOptimal, 1);
  const PlannedRun optimal = plan_again(none, Policy::kOptimal, least.smallest_budget_bytes());
  EXPECT_TRUE(optimal.fits());
  EXPECT_LT(optimal.prediction.peak_bytes, none.prediction.peak_bytes * 3 / 4);
  EXPECT_GT(offload_bytes(*optimal.tape, optimal.schedule), 0U);
  judge(optimal, "optimal");
}

TEST(PlannedStep, AutoMovesNothingWhereAllFits) {
  RunOptions options = options_of(small_step(), Policy::kOptimal);
  options.policy.reset();
  EXPECT_EQ(plan_run(options).plan.options.policy, Policy::kOffloadNone);
  options.memory_bytes = 46 * kStepMiB;
  const PlannedRun run = plan_run(options);
  EXPECT_EQ(run.plan.options.policy, Policy::kOptimal);
  EXPECT_TRUE(run.fits());
  judge(run, "auto");
}

TEST(PlannedStep, SaysWhereItIsFrom) {
  const PlannedRun run = plan_run(options_of(small_step(), Policy::kOffloadNone));
  EXPECT_EQ(run.algorithms_source(), "PyTorch 2.15.0 on cpu");
  EXPECT_EQ(run.tape->model(), "small.py");
  EXPECT_EQ(run.batch(), 8);
  EXPECT_FALSE(run.network);
  EXPECT_FALSE(run.library);
}

TEST(PlannedStep, CannotBeTrained) {
  EXPECT_THAT(refusal([] {
                const PlannedRun run = plan_run(options_of(small_step(), Policy::kOffloadNone, "cpu"));
                Session(run, {});
              }),
              HasSubstr("small.py is a learned step: only its own program can run it"));
}

TEST(PlannedStep, HasNoMeasuredCostsAndNoEvaluation) {
  const PlannedRun run = plan_run(options_of(small_step(), Policy::kOffloadNone));
  const auto names_the_step = HasSubstr("small.py is a learned step: only its own program can run it");
  EXPECT_THAT(refusal([&] { with_costs(run, {}); }), names_the_step);
  EXPECT_THAT(refusal([&] { plan_evaluation(run); }), names_the_step);
}

TEST(PlannedStep, RefusesWhatIsNotInAStep) {
  const auto refusal_with = [](const auto& change) {
    RunOptions options = options_of(small_step(), Policy::kOffloadNone);
    change(options);
    return refusal([&] { plan_run(options); });
  };
  EXPECT_THAT(refusal_with([](RunOptions& options) { options.training.ranks = 2; }),
              HasSubstr("training.ranks"));
  EXPECT_THAT(refusal_with([](RunOptions& options) { options.training.micro_steps = 2; }),
              HasSubstr("training.micro_steps"));
  EXPECT_THAT(refusal_with([](RunOptions& options) { options.graph = true; }), HasSubstr("graph: "));
  EXPECT_THAT(refusal_with([](RunOptions& options) { options.profile = "costs.json"; }),
              HasSubstr("profile: "));
  EXPECT_THAT(refusal_with([](RunOptions& options) { options.recorded_algorithms["start"] = "recorded"; }),
              HasSubstr("recorded_algorithms"));
  for (const Policy policy : {Policy::kOffloadConv, Policy::kDynamic}) {
    EXPECT_THAT(refusal_with([&](RunOptions& options) { options.policy = policy; }),
                HasSubstr("policy = " + to_string(policy)));
  }
}

TEST(PlannedStep, ABudgetThatIsTooSmallNamesABatchThatFits) {
  RunOptions options = options_of(small_step(), Policy::kOffloadNone);
  options.memory_bytes = 32 * kStepMiB;
  const PlannedRun run = plan_run(options);
  try {
    require_fit(run, WaysOut::kTold);
    ADD_FAILURE() << "it fits";
  } catch (const OutOfMemory& error) {
    const std::string text = error.what();
    const std::size_t batch = text.find("model.batch = ");
    ASSERT_NE(batch, std::string::npos) << text;
    options.model.batch = std::stoll(text.substr(batch + std::string("model.batch = ").size()));
    EXPECT_TRUE(plan_run(options).fits()) << text;
  }
}

TEST(PlannedStep, SweepGoesFromTheLeastToAllThatIsNeeded) {
  const std::vector<PlannedRun> runs{plan_run(options_of(small_step(), Policy::kOffloadNone))};
  const Sweep sweep = sweep_budgets(
      runs, {.policies = {Policy::kOptimal, Policy::kOffloadNone, Policy::kOffloadAll}, .points = 4});
  EXPECT_EQ(sweep.points.back().budget_bytes, small_step().peak_bytes);
  for (const SweepPoint& point : sweep.points) {
    EXPECT_EQ(point.recomputed_ops, 0U);
    EXPECT_TRUE(point.fits || point.approach != Approach(Policy::kOptimal));
  }
}

TEST(PlannedStep, TheLargestBatchFitsAndTheNextDoesNot) {
  RunOptions options = options_of(small_step(), Policy::kOptimal);
  options.memory_bytes = 96 * kStepMiB;
  const MaxBatch found = find_max_batch({.run = options});
  ASSERT_TRUE(found.without_offloading);
  const auto fits = [&](std::int64_t batch, Policy policy) {
    options.model.batch = batch;
    options.policy = policy;
    return plan_run(options).fits();
  };
  const std::int64_t kept = found.without_offloading->trial.run.batch();
  EXPECT_GT(kept, 8) << "the budget is twice the memory of the step of 8";
  EXPECT_TRUE(fits(kept, Policy::kOffloadNone));
  EXPECT_FALSE(fits(found.without_offloading->next, Policy::kOffloadNone));
  const std::int64_t most = found.most.trial.run.batch();
  EXPECT_GT(most, kept);
  EXPECT_TRUE(fits(most, Policy::kOptimal));
  EXPECT_FALSE(fits(found.most.next, Policy::kOptimal));
}

}  // namespace
}  // namespace vdnn::planned_step_test
