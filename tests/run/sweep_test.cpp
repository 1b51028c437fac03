#include "src/run/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/extent.h"
#include "vdnn/error.h"

namespace vdnn::sweep_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

RunOptions on_titan(const std::string& model, std::int64_t batch) {
  return {.model = {.model = model, .batch = batch}, .device = "sim:titan-x", .policy = Policy::kOffloadNone};
}

std::vector<SweepPoint> of_policy(const Sweep& sweep, Policy policy) {
  std::vector<SweepPoint> result;
  std::ranges::copy_if(sweep.points, std::back_inserter(result),
                       [&](const SweepPoint& point) { return point.approach == Approach(policy); });
  return result;
}

// Each point equals the result of the command `plan`.
TEST(Sweep, SaysWhatPlanSays) {
  RunOptions options = on_titan("fashion-vgg", 32);
  const Sweep sweep = sweep_budgets({plan_run(options)}, {.points = 4});
  ASSERT_EQ(sweep.points.size(), 4 * SweepOptions().policies.size());
  for (const SweepPoint& point : sweep.points) {
    SCOPED_TRACE(to_string(point.approach) + " in " + std::to_string(point.budget_bytes));
    options.policy = std::get<Policy>(point.approach);
    options.memory_bytes = point.budget_bytes;
    const PlannedRun run = plan_run(options);
    EXPECT_EQ(point.fits, run.fits());
    EXPECT_EQ(point.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(point.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(point.step_seconds, run.prediction.step_seconds);
    EXPECT_EQ(point.smallest_budget_bytes, run.smallest_budget_bytes());
    EXPECT_EQ(point.offload_bytes, offload_bytes(*run.tape, run.schedule));
    EXPECT_EQ(point.recomputed_ops, recomputed_ops(run.schedule));
    EXPECT_EQ(point.oracle_step_seconds, oracle_step_seconds(run));
    EXPECT_EQ(point.lower_bound_step_seconds, lower_bound_step_seconds(run));
  }
}

TEST(Sweep, MoreMemoryIsNeverSlowerUnderOptimal) {
  std::vector<std::string> models{"fashion-vgg", "resnet20", "googlenet"};
  models.resize(testing::extent({.usual = 3, .under_sanitizers = 1, .in_long_run = 3}));
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const Sweep sweep = sweep_budgets({plan_run(on_titan(model, 32))}, {.points = 20});
    const std::vector<SweepPoint> optimal = of_policy(sweep, Policy::kOptimal);
    EXPECT_GT(optimal.size(), 5U);
    EXPECT_GT(optimal.front().step_seconds, optimal.back().step_seconds);
    for (std::size_t each = 0; each < optimal.size(); ++each) {
      EXPECT_TRUE(optimal[each].fits) << optimal[each].budget_bytes;
      EXPECT_GE(optimal[each].over_lower_bound(), 0);
      if (each > 0) {
        EXPECT_GT(optimal[each].budget_bytes, optimal[each - 1].budget_bytes);
        EXPECT_LE(optimal[each].step_seconds, optimal[each - 1].step_seconds) << optimal[each].budget_bytes;
        EXPECT_LE(optimal[each].lower_bound_step_seconds,
                  optimal[each - 1].lower_bound_step_seconds * (1 + 1e-9));
      }
    }
    // No other point that fits is faster.
    for (const SweepPoint& point : sweep.points) {
      const auto best = std::ranges::find(optimal, point.budget_bytes, &SweepPoint::budget_bytes);
      ASSERT_NE(best, optimal.end());
      if (point.fits) {
        EXPECT_LE(best->step_seconds, point.step_seconds) << to_string(point.approach);
      }
    }
  }
}

// The methods of other programs are never faster, and they fit fewer budgets.
TEST(Sweep, OptimalIsNoSlowerThanAnyPeer) {
  std::vector<std::string> models{"unet", "resnet20", "googlenet", "vgg16"};
  models.resize(testing::extent({.usual = 3, .under_sanitizers = 1, .in_long_run = 4}));
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    SweepOptions options{.policies = {Policy::kOptimal}, .points = 8};
    options.peers.assign(all_peers().begin(), all_peers().end());
    RunOptions run = on_titan(model, 16);
    run.device = "sim:rtx4090";
    const Sweep sweep = sweep_budgets({plan_run(run)}, options);
    ASSERT_EQ(sweep.approaches.size(), 1 + all_peers().size());
    ASSERT_EQ(sweep.points.size() % sweep.approaches.size(), 0U);
    std::map<Approach, int> fitting;
    for (std::size_t each = 0; each < sweep.points.size(); ++each) {
      const SweepPoint& point = sweep.points[each];
      const SweepPoint& optimal = sweep.points[each / sweep.approaches.size() * sweep.approaches.size()];
      EXPECT_EQ(point.approach, sweep.approaches[each % sweep.approaches.size()]);
      ASSERT_EQ(optimal.budget_bytes, point.budget_bytes);
      if (point.fits) {
        EXPECT_TRUE(optimal.fits);
        EXPECT_LE(optimal.step_seconds, point.step_seconds) << to_string(point.approach);
        EXPECT_LE(point.peak_bytes, point.budget_bytes);
        EXPECT_GE(point.over_lower_bound(), 0);
        ++fitting[point.approach];
      }
    }
    for (const Peer peer : all_peers()) {
      EXPECT_GT(fitting[peer], 0) << to_string(peer);
      EXPECT_LT(fitting[peer], fitting[Policy::kOptimal]) << to_string(peer);
    }
  }
}

// With more memory, faster schedules of rotor fit.
TEST(Sweep, RotorIsFasterInMoreMemory) {
  const Sweep sweep = sweep_budgets({plan_run(on_titan("resnet20", 32))},
                                    {.policies = {Policy::kOptimal}, .peers = {Peer::kRotor}, .points = 12});
  double above = std::numeric_limits<double>::infinity();
  std::set<double> seconds;
  for (const SweepPoint& point : sweep.points) {
    if (point.approach == Approach(Peer::kRotor) && point.fits) {
      EXPECT_LE(point.step_seconds, above) << point.budget_bytes;
      above = point.step_seconds;
      seconds.insert(above);
    }
  }
  EXPECT_GT(seconds.size(), 3U);
}

TEST(Sweep, GoesFromTheLeastThatRunsToWhatNoneNeeds) {
  const RunOptions options = on_titan("resnet20", 64);
  const PlannedRun none = plan_run(options);
  const Sweep sweep =
      sweep_budgets({none}, {.policies = {Policy::kOffloadNone, Policy::kOptimal}, .points = 5});
  RunOptions least = options;
  least.policy = Policy::kOptimal;
  EXPECT_EQ(sweep.points.front().budget_bytes, plan_run(least).smallest_budget_bytes());
  EXPECT_EQ(sweep.points.back().budget_bytes, none.smallest_budget_bytes());
  EXPECT_TRUE(of_policy(sweep, Policy::kOptimal).front().fits);
  const std::vector<SweepPoint> of_none = of_policy(sweep, Policy::kOffloadNone);
  EXPECT_EQ(std::ranges::count(of_none, true, &SweepPoint::fits), 1);
  EXPECT_TRUE(of_none.back().fits);
  EXPECT_EQ(sweep.last.plan.options.policy, Policy::kOffloadNone);
  EXPECT_EQ(sweep.last.target.budget_bytes, sweep.points.back().budget_bytes);
}

TEST(Sweep, BudgetsAreInEqualRatiosAndWholeGranules) {
  std::vector<std::uint64_t> told;
  const SweepOptions options{.policies = {Policy::kOffloadAll},
                             .from_bytes = 100 * kMiB + 1,
                             .to_bytes = 800 * kMiB + 1,
                             .points = 4,
                             .swept = [&](const SweepPoint& point) { told.push_back(point.budget_bytes); }};
  const Sweep sweep = sweep_budgets({plan_run(on_titan("lenet", 8))}, options);
  EXPECT_THAT(told, ElementsAre(100 * kMiB + 1, 200 * kMiB, 400 * kMiB, 800 * kMiB + 1));
  EXPECT_EQ(sweep.points.size(), told.size());
}

TEST(Sweep, EqualBudgetsAreTriedOnce) {
  const Sweep sweep = sweep_budgets(
      {plan_run(on_titan("lenet", 8))},
      {.policies = {Policy::kOffloadAll}, .from_bytes = 64 * kMiB, .to_bytes = 66 * kMiB, .points = 9});
  std::vector<std::uint64_t> budgets;
  for (const SweepPoint& point : sweep.points) {
    budgets.push_back(point.budget_bytes);
  }
  EXPECT_THAT(budgets, ElementsAre(64 * kMiB, 66 * kMiB));
}

// Page-locked memory has a budget, too.
TEST(Sweep, WhatDoesNotFitTheHostDoesNotFit) {
  RunOptions options = on_titan("fashion-vgg", 32);
  options.host_memory_bytes = 1;
  const Sweep sweep = sweep_budgets(
      {plan_run(options)},
      {.policies = {Policy::kOffloadAll}, .from_bytes = 4096 * kMiB, .to_bytes = 8192 * kMiB, .points = 2});
  for (const SweepPoint& point : sweep.points) {
    EXPECT_FALSE(point.fits);
    EXPECT_LT(point.peak_bytes, point.budget_bytes);
  }
}

RunOptions on_h100(const std::optional<bool>& tf32, DataType storage) {
  RunOptions options{.model = {.model = "resnet20", .batch = 64},
                     .device = "sim:h100",
                     .policy = Policy::kOffloadNone,
                     .tf32 = tf32};
  options.training.precision.storage = storage;
  return options;
}

TEST(Sweep, NamesPrecisionsAsTheyAreAskedFor) {
  EXPECT_EQ(precision_name(plan_run(on_h100(false, DataType::kF32))), "fp32");
  EXPECT_EQ(precision_name(plan_run(on_h100(true, DataType::kF32))), "tf32");
  EXPECT_EQ(precision_name(plan_run(on_h100({}, DataType::kF32))), "fp32");
  EXPECT_EQ(precision_name(plan_run(on_h100({}, DataType::kBf16))), "bf16");
  EXPECT_EQ(precision_name(plan_run(on_h100(true, DataType::kF16))), "fp16");
}

// Budgets go from the smallest need of all precisions to the largest, and each point equals the result of
// plan_run() for its precision.
TEST(Sweep, ComparesPrecisionsInTheSameBudgets) {
  const std::map<std::string, RunOptions> by_name{{"fp32", on_h100(false, DataType::kF32)},
                                                  {"tf32", on_h100(true, DataType::kF32)},
                                                  {"bf16", on_h100({}, DataType::kBf16)}};
  const std::vector<PlannedRun> runs{plan_run(by_name.at("fp32")), plan_run(by_name.at("tf32")),
                                     plan_run(by_name.at("bf16"))};
  const Sweep sweep =
      sweep_budgets(runs, {.policies = {Policy::kOptimal, Policy::kOffloadNone}, .points = 4});
  EXPECT_THAT(sweep.precisions, ElementsAre("fp32", "tf32", "bf16"));
  ASSERT_EQ(sweep.points.size(), 4 * 2 * 3U);
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::size_t each = 0; each < sweep.points.size(); ++each) {
    const SweepPoint& point = sweep.points[each];
    SCOPED_TRACE(series_name(sweep, point) + " " + std::to_string(point.budget_bytes));
    EXPECT_EQ(point.precision, sweep.precisions[each % 3]);
    EXPECT_EQ(std::get<Policy>(point.approach), each / 3 % 2 == 0 ? Policy::kOptimal : Policy::kOffloadNone);
    RunOptions options = by_name.at(point.precision);
    options.policy = std::get<Policy>(point.approach);
    options.memory_bytes = point.budget_bytes;
    const PlannedRun run = plan_run(options);
    EXPECT_EQ(point.fits, run.fits());
    EXPECT_EQ(point.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(point.step_seconds, run.prediction.step_seconds);
    EXPECT_EQ(point.oracle_step_seconds, oracle_step_seconds(run));
    EXPECT_EQ(point.product_precisions, run.product_precisions());
    least = std::min(least, point.smallest_budget_bytes);
    most =
        point.approach == Approach(Policy::kOffloadNone) ? std::max(most, point.smallest_budget_bytes) : most;
  }
  EXPECT_EQ(sweep.points.front().budget_bytes, least);
  EXPECT_EQ(sweep.points.back().budget_bytes, most);
  EXPECT_EQ(series_name(sweep, sweep.points[2]), "optimal in bf16");
  // Only bf16 fits the smallest budget.
  EXPECT_FALSE(sweep.points[0].fits);
  EXPECT_TRUE(sweep.points[2].fits);
  EXPECT_EQ(sweep.last.plan.options.policy, Policy::kOptimal);
  EXPECT_EQ(precision_name(sweep.last), "fp32");
  EXPECT_EQ(sweep.last.target.budget_bytes, most);
}

TEST(Sweep, RefusesAPrecisionTwiceAndNone) {
  const PlannedRun run = plan_run(on_titan("lenet", 8));
  EXPECT_THAT(
      [&] {
        sweep_budgets({run, run}, {});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("precisions: fp32 is there twice")));
  EXPECT_THAT([&] { sweep_budgets({}, {}); }, ThrowsMessage<InvalidArgument>(HasSubstr("precisions")));
}

TEST(Sweep, WhatCannotBeIsRefused) {
  const PlannedRun run = plan_run(on_titan("lenet", 8));
  const auto expect_refused = [&](const SweepOptions& options, const char* message) {
    EXPECT_THAT([&] { sweep_budgets({run}, options); }, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  expect_refused({.points = 1}, "points = 1");
  expect_refused({.policies = {}}, "policies");
  expect_refused({.policies = {Policy::kOptimal, Policy::kOptimal}}, "optimal is there twice");
  expect_refused({.peers = {Peer::kRotor, Peer::kRotor}}, "peers: rotor is there twice");
  expect_refused({.from_bytes = 2 * kMiB, .to_bytes = kMiB}, "from_bytes = 2097152");
  expect_refused({.from_bytes = 0}, "from_bytes = 0");
  EXPECT_THROW(plan_again(run, Policy::kOptimal, 0), InvalidArgument);
}

TEST(Sweep, RefusesTooManyPointsAndKeepsBudgetsInOrder) {
  const PlannedRun run = plan_run(
      {.model = {.model = "lenet", .batch = 8}, .device = "sim:titan-x", .policy = Policy::kOffloadNone});
  EXPECT_THROW(sweep_budgets({run}, {.points = 99999999999}), InvalidArgument);
  for (const std::uint64_t bytes : {1152921504606846975ULL, ~0ULL}) {
    const Sweep sweep = sweep_budgets(
        {run}, {.policies = {Policy::kOffloadNone}, .from_bytes = bytes, .to_bytes = bytes, .points = 4});
    ASSERT_EQ(sweep.points.size(), 1U);
    EXPECT_EQ(sweep.points.front().budget_bytes, bytes);
  }
}

}  // namespace
}  // namespace vdnn::sweep_test
