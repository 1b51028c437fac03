#include "src/report/counterfactual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/extent.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::array kDecisions{ValueDecision::kKept, ValueDecision::kOffloaded, ValueDecision::kRecomputed};

PlannedRun planned(Policy policy, std::optional<std::uint64_t> memory_bytes = std::nullopt) {
  return plan_run({.model = {.model = "resnet20", .batch = 64},
                   .device = "sim:titan-x",
                   .memory_bytes = memory_bytes,
                   .policy = policy});
}

// The values about which the plan decides whether they stay, are offloaded or are recomputed.
std::vector<ValueId> decided_values(const PlannedRun& run) {
  std::vector<ValueId> values;
  for (ValueId value = 0; value < run.tape->values().size(); ++value) {
    if (why_undecided(run, value).empty()) {
      values.push_back(value);
    }
  }
  return values;
}

TEST(Counterfactual, ThePlanAsItIsIsWhatWasPredicted) {
  for (const Policy policy :
       {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
    const PlannedRun run = planned(policy);
    const Counterfactual outcome = as_planned(run);
    EXPECT_EQ(outcome.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(outcome.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(outcome.step_seconds, run.prediction.step_seconds);
    EXPECT_EQ(outcome.fits, run.fits());
  }
}

// as_planned() reports the current plan. A new plan with the same decisions also fits, and its step is not
// longer. The step may be shorter, since `optimal` plans addresses for the size that it searched, not for the
// whole budget.
TEST(Counterfactual, ThePlanOfOptimalIsWhatWasPredicted) {
  std::vector<std::string> models{"resnet20", "alexnet", "googlenet", "resnet50"};
  models.resize(testing::extent({.usual = 4, .under_sanitizers = 2, .in_long_run = 4}));
  for (const std::string& model : models) {
    const PlannedRun asked = plan_run(
        {.model = {.model = model, .batch = 32}, .device = "sim:titan-x", .policy = Policy::kOptimal});
    for (const double ratio : {1.0, 1.1, 1.6}) {
      SCOPED_TRACE(model + " " + std::to_string(ratio));
      const auto budget =
          static_cast<std::uint64_t>(static_cast<double>(asked.smallest_budget_bytes()) * ratio);
      const PlannedRun run = plan_again(asked, Policy::kOptimal, budget);
      ASSERT_TRUE(run.fits());
      const Counterfactual outcome = as_planned(run);
      EXPECT_EQ(outcome.step_seconds, run.prediction.step_seconds);
      EXPECT_EQ(outcome.peak_bytes, run.prediction.peak_bytes);
      EXPECT_TRUE(outcome.fits);
      if (const std::optional<Counterfactual> again = remade(run)) {
        EXPECT_TRUE(again->impossible.empty()) << again->impossible;
        EXPECT_TRUE(again->fits);
        EXPECT_LE(again->step_seconds, run.prediction.step_seconds * (1 + 1e-9));
      }
    }
  }
}

// Keeps a value that `all` offloads; the changed plan has one transfer less and reports it.
TEST(Counterfactual, ChangesThatDecisionAlone) {
  const PlannedRun run = planned(Policy::kOffloadAll);
  ASSERT_FALSE(run.plan.transfers.empty());
  for (const Transfer& transfer : run.plan.transfers) {
    if (!why_undecided(run, transfer.value).empty()) {
      continue;
    }
    Plan plan = run.plan;
    std::erase_if(plan.transfers, [&](const Transfer& other) { return other.value == transfer.value; });
    const Schedule schedule = make_schedule(*run.tape, plan);
    const Prediction expected = predict(*run.tape, schedule, prediction_options(run));
    const Counterfactual outcome = decided_otherwise(run, transfer.value, ValueDecision::kKept);
    EXPECT_THAT(outcome.impossible, IsEmpty());
    EXPECT_EQ(outcome.peak_bytes, expected.peak_bytes);
    EXPECT_EQ(outcome.step_seconds, expected.step_seconds);
    EXPECT_LT(outcome.host_bytes, run.prediction.host_bytes);
  }
}

// For every value, each decision is either possible or reported as impossible with a reason.
TEST(Counterfactual, EveryDecisionIsPossibleOrHasAReason) {
  const std::size_t stride = testing::extent({.usual = 1, .under_sanitizers = 5, .in_long_run = 1});
  const std::uint64_t most = planned(Policy::kOffloadNone).smallest_peak_bytes;
  for (const PlannedRun& run : {planned(Policy::kOffloadNone), planned(Policy::kOffloadAll),
                                planned(Policy::kOptimal, most / 2), planned(Policy::kOptimal, most / 3)}) {
    std::size_t possible = 0;
    std::size_t impossible = 0;
    const std::vector<ValueId> values = decided_values(run);
    for (std::size_t each = 0; each < values.size(); each += stride) {
      const ValueId value = values[each];
      for (const ValueDecision decision : kDecisions) {
        const Counterfactual outcome = decided_otherwise(run, value, decision);
        if (outcome.impossible.empty()) {
          ++possible;
          EXPECT_GT(outcome.peak_bytes, 0U);
          EXPECT_EQ(outcome.missing_bytes > 0, outcome.peak_bytes > run.target.budget_bytes);
        } else {
          ++impossible;
          EXPECT_NE(decision, ValueDecision::kKept) << run.tape->value(value).name;
        }
      }
    }
    EXPECT_GT(possible, 3 * impossible) << to_string(run.plan.options.policy);
  }
}

// With enough memory for all values, offloading one of them frees memory for other values.
TEST(Counterfactual, OffloadingAndRecomputingSaveMemory) {
  const PlannedRun run = planned(Policy::kOffloadNone);
  std::size_t smaller = 0;
  for (const ValueId value : decided_values(run)) {
    if (decisions_of(*run.tape, run.schedule)[value] == ValueDecision::kKept &&
        run.tape->producer(value) != kNone) {
      smaller +=
          decided_otherwise(run, value, ValueDecision::kOffloaded).peak_bytes < run.prediction.peak_bytes;
      const Counterfactual recomputed = decided_otherwise(run, value, ValueDecision::kRecomputed);
      if (recomputed.impossible.empty()) {
        EXPECT_GT(recomputed.step_seconds, run.prediction.step_seconds);
      }
    }
  }
  EXPECT_GT(smaller, 0U);
}

TEST(Counterfactual, SaysWhyThereIsNothingToDecide) {
  const PlannedRun run = planned(Policy::kOffloadNone);
  const auto reason = [&](const std::string& name) {
    const ValueId value = run.tape->find_value(name);
    EXPECT_NE(value, kNone) << name;
    EXPECT_THAT(decisions_of(*run.tape, run.schedule)[value],
                ::testing::AnyOf(ValueDecision::kUndecided, ValueDecision::kDropped));
    EXPECT_THROW(decided_otherwise(run, value, ValueDecision::kKept), InvalidArgument);
    return why_undecided(run, value);
  };
  EXPECT_THAT(reason(run.tape->value(run.tape->parameters()[0].value).name), HasSubstr("stay on the device"));
  const auto named = [&](ValueKind kind) {
    return std::ranges::find(run.tape->values(), kind, &Value::kind)->name;
  };
  EXPECT_THAT(reason(named(ValueKind::kGradientMap)), HasSubstr("after the forward pass"));
  EXPECT_THAT(reason(named(ValueKind::kMetrics)), HasSubstr("does not read it"));
  const PlannedRun baseline = planned(Policy::kBaseline);
  EXPECT_THAT(why_undecided(baseline, decided_values(run).front()), HasSubstr("throughout the step"));
}

TEST(Counterfactual, AnInputCannotBeComputed) {
  const PlannedRun run = planned(Policy::kOffloadNone);
  const ValueId images = run.tape->inputs()[0];
  ASSERT_THAT(why_undecided(run, images), IsEmpty());
  EXPECT_THAT(decided_otherwise(run, images, ValueDecision::kRecomputed).impossible, HasSubstr("loaded"));
  EXPECT_THAT(decided_otherwise(run, images, ValueDecision::kOffloaded).impossible, IsEmpty());
}

TEST(Counterfactual, AnotherAlgorithmTakesItsOwnTimeAndWorkspace) {
  const PlannedRun run = plan_run({.model = {.model = "alexnet", .batch = 32},
                                   .device = "sim:titan-x",
                                   .policy = Policy::kOffloadNone,
                                   .algorithms = AlgorithmPreference::kMemory});
  const PlanCosts costs = plan_costs(*run.tape, prediction_options(run));
  std::size_t faster = 0;
  for (OpId op = 0; op < run.tape->ops().size(); ++op) {
    const std::vector<double>& seconds = costs.op_seconds[op];
    const auto fastest = static_cast<std::uint32_t>(std::ranges::min_element(seconds) - seconds.begin());
    const double gain = seconds[run.plan.algorithms[op]] - seconds[fastest];
    if (gain > 0) {
      ++faster;
      EXPECT_NEAR(run.prediction.step_seconds - computed_otherwise(run, op, fastest).step_seconds, gain,
                  1e-3 * run.prediction.step_seconds);
    }
  }
  EXPECT_GT(faster, 3U);
}

}  // namespace
}  // namespace vdnn
