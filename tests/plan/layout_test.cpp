// What the planner's model of a step (src/plan/optimal/layout.h) makes of decisions.

#include "src/plan/optimal/layout.h"

#include <gtest/gtest.h>

#include "plan/tapes.h"
#include "vdnn/checker.h"

namespace vdnn::testing {
namespace {

PlanCosts costs_of(const Tape& tape, double link) {
  PlanCosts costs{.op_seconds = {},
                  .device_to_host = link,
                  .host_to_device = link,
                  .device_to_host_both_ways = link,
                  .host_to_device_both_ways = link,
                  .copy_seconds = 0,
                  .alignment_bytes = 64,
                  .granule_bytes = 64};
  for (const Op& op : tape.ops()) {
    costs.op_seconds.emplace_back(op.algorithms.size(), 1.0);
  }
  return costs;
}

// Before, a value that was needed soon stayed behind one that was copied before it and needed later, and was
// given back only when it should have been there again.
TEST(Layout, WhatIsNeededSoonHasLeftBeforeItIsFetched) {
  const TapePtr tape = model_tape("fashion-vgg");
  for (const double bytes_per_second : {1e2, 1e3, 1e4, 1e5, 1e6}) {
    const PlanCosts costs = costs_of(*tape, bytes_per_second);
    const optimal::Problem problem(*tape, {}, costs);
    optimal::Layout layout(problem);
    const optimal::Decisions all{.fates = optimal::Fates(problem.gaps().size(), optimal::Fate::kOffload),
                                 .least_choice = std::vector<std::uint8_t>(problem.slots(), 0)};
    ASSERT_TRUE(layout.evaluate(all, problem.most_bytes()).feasible());
    Plan plan = plan_of(*tape, Policy::kOffloadNone);
    layout.write(plan);
    for (const Transfer& transfer : plan.transfers) {
      EXPECT_TRUE(transfer.offload_with == kNone || transfer.offload_with <= transfer.release_with);
      EXPECT_LT(transfer.release_with, transfer.prefetch_with) << tape->value(transfer.value).name;
    }
    EXPECT_TRUE(check_schedule(*tape, make_schedule(*tape, plan)).empty());
  }
}

// While a block's input and what its branch makes are both needed, neither is all that the rest needs.
TEST(Problem, CutsAreWhatBlocksHandOn) {
  TapeDraft draft;
  const auto map = [&](const char* name) { return draft.value(name, ValueKind::kFeatureMap, 4096); };
  const ValueId images = draft.value("images", ValueKind::kInput, 4096);
  const ValueId targets = draft.value("targets", ValueKind::kTarget, 64);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 64);
  const std::uint32_t layer = draft.layer("all");
  const ValueId before = map("before");
  const ValueId branch = map("branch");
  const ValueId sum = map("sum");
  const ValueId after = map("after");
  const auto forward = [&](const char* name, std::vector<ValueId> reads, ValueId made) {
    draft.op(name, layer, Phase::kForward, std::move(reads), {made});
  };
  forward("stem", {images}, before);
  forward("branch", {before}, branch);
  forward("sum", {before, branch}, sum);
  forward("after", {sum}, after);
  draft.op("loss", layer, Phase::kForward, {after, targets}, {metrics});
  draft.op("other.backward", layer, Phase::kBackward, {targets},
           {draft.value("g", ValueKind::kGradientMap, 64)});
  draft.op("backward", layer, Phase::kBackward, {after, sum, branch, before, images},
           {draft.value("dw", ValueKind::kParameterGradient, 64)});
  const TapePtr tape = draft.finish();
  const PlanCosts costs = costs_of(*tape, 1e6);
  const optimal::Problem problem(*tape, {}, costs);
  const auto cut = [&](ValueId value) { return problem.gaps().at(problem.main_gap(value)).cut; };
  EXPECT_TRUE(cut(before)) << "behind the stem";
  EXPECT_FALSE(cut(branch));
  EXPECT_TRUE(cut(sum));
  EXPECT_TRUE(cut(after));
}

}  // namespace
}  // namespace vdnn::testing
