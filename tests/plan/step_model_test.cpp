// The planner's model of a step for given decisions (src/plan/optimal/step_model.h), and the lower bounds.

#include "src/plan/optimal/step_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/plan/optimal/operands.h"
#include "src/plan/placement.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/optimal_plan.h"

namespace vdnn::testing {
namespace {

using ::testing::ElementsAre;

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

// Regression: the release of a value needed soon waited for a value that was copied earlier but needed later.
// The release then came only when the value should have been back.
TEST(StepModel, WhatIsNeededSoonHasLeftBeforeItIsFetched) {
  const TapePtr tape = model_tape("fashion-vgg");
  for (const double bytes_per_second : {1e2, 1e3, 1e4, 1e5, 1e6}) {
    const PlanCosts costs = costs_of(*tape, bytes_per_second);
    const optimal::Problem problem(*tape, {}, costs);
    optimal::StepModel model(problem);
    const optimal::Decisions all{.fates = optimal::Fates(problem.gaps().size(), optimal::Fate::kOffload),
                                 .least_choice = std::vector<std::uint8_t>(problem.slots(), 0)};
    ASSERT_TRUE(model.evaluate(all, problem.most_bytes()).feasible());
    Plan plan = plan_of(*tape, Policy::kOffloadNone);
    model.write(plan);
    for (const Transfer& transfer : plan.transfers) {
      EXPECT_TRUE(transfer.offload_with == kNone || transfer.offload_with <= transfer.release_with);
      EXPECT_LT(transfer.release_with, transfer.prefetch_with) << tape->value(transfer.value).name;
    }
    EXPECT_TRUE(check_schedule(*tape, make_schedule(*tape, plan)).empty());
  }
}

// Each of three maps has a reader in the backward pass, after which it is released; the last reader also
// reads the images. So the next step's images can be loaded before this step ends, as soon as there is memory
// for them. Regression: if that memory was not free for the whole load, the model hid no part of the load.
// The planner then missed plans that the executor runs faster.
TEST(StepModel, HidesAsMuchOfTheNextLoadAsThereIsRoomFor) {
  TapeDraft draft;
  const std::uint32_t layer = draft.layer("all");
  const ValueId images = draft.value("images", ValueKind::kInput, 4096);
  std::vector<ValueId> maps;
  ValueId before = images;
  for (const std::string name : {"1", "2", "3"}) {
    maps.push_back(draft.value("y" + name, ValueKind::kFeatureMap, 4096));
    draft.op("forward" + name, layer, Phase::kForward, {before}, {maps.back()});
    before = maps.back();
  }
  draft.op("backward3", layer, Phase::kBackward, {maps[2]}, {draft.value("d3", ValueKind::kGradientMap, 64)});
  draft.op("backward2", layer, Phase::kBackward, {maps[1]}, {draft.value("d2", ValueKind::kGradientMap, 64)});
  draft.op("backward1", layer, Phase::kBackward, {maps[0], images},
           {draft.value("dw", ValueKind::kParameterGradient, 64)});
  const TapePtr tape = draft.finish();
  const PlanCosts costs = costs_of(*tape, 4096 / 2.5);  // an op takes 1 s, the images take 2.5 s
  const optimal::Problem problem(*tape, {}, costs);
  optimal::StepModel model(problem);
  optimal::Decisions decisions{.fates = optimal::Fates(problem.gaps().size(), optimal::Fate::kKeep),
                               .least_choice = std::vector<std::uint8_t>(problem.slots(), 0)};
  decisions.fates[problem.main_gap(images)] = optimal::Fate::kOffload;
  const auto first_slot = [&](std::uint64_t bytes) {
    EXPECT_TRUE(model.evaluate(decisions, bytes).feasible());
    return model.next_load();
  };
  const std::uint64_t all = std::uint64_t{4} * 4096 + 256;
  EXPECT_EQ(first_slot(all), op_named(*tape, "backward3"));
  const double seconds_of_all = model.evaluate(decisions, all).seconds;
  EXPECT_EQ(first_slot(all - 4096), op_named(*tape, "backward2"));
  EXPECT_DOUBLE_EQ(model.evaluate(decisions, all - 4096).seconds, seconds_of_all + 0.5 + 1.5)
      << "half a second of the load is left, and the images come back 1.5 s late";
}

// Regression: one value overwrites another, and both are recomputed on the way to a third. The model forgot
// the memory of the overwriting value and counted the third value as present from the first of these ops on.
TEST(StepModel, CountsWhatIsRecomputedInPlaceOnTheWay) {
  TapeDraft draft;
  const ValueId images = draft.value("images", ValueKind::kInput, 64);
  const ValueId targets = draft.value("targets", ValueKind::kTarget, 64);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 64);
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 64);
  const auto map = [&](const char* name, std::uint64_t bytes) {
    return draft.value(name, ValueKind::kFeatureMap, bytes);
  };
  const ValueId wide = map("wide", 1 << 20);
  const ValueId relu = map("relu", 1 << 19);
  const ValueId narrow = map("narrow", 1 << 19);
  const ValueId kept = map("kept", 1 << 18);
  const ValueId last = map("last", 1 << 18);
  const std::uint32_t layer = draft.layer("all");
  draft.op("widen", layer, Phase::kForward, {images}, {wide});
  draft.op("in place", layer, Phase::kForward, {wide}, {relu}, {{.write = 0, .read = 0}});
  draft.op("narrow", layer, Phase::kForward, {relu}, {narrow});
  draft.op("keep", layer, Phase::kForward, {narrow}, {kept});
  draft.op("last", layer, Phase::kForward, {kept}, {last});
  draft.op("loss", layer, Phase::kForward, {last, targets}, {metrics});
  draft.op("backward", layer, Phase::kBackward, {kept, last, images}, {dw});
  const TapePtr tape = draft.finish();
  const PlanCosts costs = costs_of(*tape, 1e6);
  const optimal::Problem problem(*tape, {}, costs);
  optimal::StepModel model(problem);
  optimal::Decisions decisions{.fates = optimal::Fates(problem.gaps().size(), optimal::Fate::kKeep),
                               .least_choice = std::vector<std::uint8_t>(problem.slots(), 0)};
  decisions.fates.at(problem.main_gap(kept)) = optimal::Fate::kRecompute;
  ASSERT_TRUE(model.evaluate(decisions, 2 * problem.most_bytes()).feasible());
  Plan plan = plan_of(*tape, Policy::kOffloadNone);
  model.write(plan);
  const std::uint64_t live = most_live_bytes(lifetimes(make_schedule(*tape, plan)), costs.alignment_bytes);
  EXPECT_TRUE(model.evaluate(decisions, live).feasible()) << live;
  EXPECT_FALSE(model.evaluate(decisions, live - costs.alignment_bytes).feasible()) << live;
}

// While the first op of the backward pass runs, its operands fill the memory. The map that the next op reads
// must be restored afterwards, part of it by a copy and part by recomputation at the same time.
TEST(Bound, KnowsThatWhatHasNoRoomBesideAnOpComesAfterIt) {
  TapeDraft draft;
  const std::uint32_t layer = draft.layer("all");
  const ValueId images = draft.value("images", ValueKind::kInput, 64);
  const ValueId small = draft.value("small", ValueKind::kFeatureMap, 4096);
  const ValueId large = draft.value("large", ValueKind::kFeatureMap, 8192);
  const ValueId gradient = draft.value("gradient", ValueKind::kGradientMap, 8192);
  draft.op("forward1", layer, Phase::kForward, {images}, {small});
  draft.op("forward2", layer, Phase::kForward, {images}, {large});
  draft.op("backward2", layer, Phase::kBackward, {large}, {gradient});
  draft.op("backward1", layer, Phase::kBackward, {small},
           {draft.value("dw", ValueKind::kParameterGradient, 64)});
  const TapePtr tape = draft.finish();
  const PlanCosts costs = costs_of(*tape, 4096 / 2.5);  // an op takes 1 s, the map takes 2.5 s
  const double both = 1 / (1 / 1.0 + 1 / 2.5);
  constexpr std::uint64_t kOperands = 2 * std::uint64_t{8192};
  EXPECT_NEAR(lower_bound_seconds(*tape, costs, kOperands), 4 + both, 1e-9);
  EXPECT_NEAR(lower_bound_seconds(*tape, costs, kOperands + 2048), 4 + both / 2, 1e-9)
      << "half of the map stays";
  EXPECT_NEAR(lower_bound_seconds(*tape, costs, kOperands + 4096), 4, 1e-9) << "the whole map stays";
}

// A value that overwrites the result of a costly op cannot be recomputed without that op.
TEST(Bound, CountsWhatMustRunAgainWithAProducer) {
  TapeDraft draft;
  const std::uint32_t layer = draft.layer("all");
  const ValueId images = draft.value("images", ValueKind::kInput, 64);
  const ValueId sum = draft.value("sum", ValueKind::kFeatureMap, 4096);
  const ValueId rectified = draft.value("rectified", ValueKind::kFeatureMap, 4096);
  draft.op("convolution", layer, Phase::kForward, {images}, {sum});
  draft.op("relu", layer, Phase::kForward, {sum}, {rectified});
  draft.op("loss", layer, Phase::kForward, {rectified}, {draft.value("loss", ValueKind::kMetrics, 64)});
  draft.op("backward", layer, Phase::kBackward, {rectified},
           {draft.value("dw", ValueKind::kParameterGradient, 64)});
  const TapePtr tape = draft.finish();
  EXPECT_THAT(optimal::run_again_for(*tape, op_named(*tape, "relu"), op_named(*tape, "loss"), 4096),
              ElementsAre(op_named(*tape, "relu"), op_named(*tape, "convolution")));
  EXPECT_THAT(optimal::run_again_for(*tape, op_named(*tape, "relu"), op_named(*tape, "relu"), 4096),
              ElementsAre(op_named(*tape, "relu")))
      << "its operand is still on the device";
  EXPECT_THAT(optimal::run_again_for(*tape, op_named(*tape, "relu"), op_named(*tape, "loss"), 8192),
              ElementsAre(op_named(*tape, "relu")))
      << "its operand needs less memory";
}

// While later ops need both a block's input and the result of its branch, neither value alone is a cut.
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
  EXPECT_TRUE(cut(before)) << "after the stem";
  EXPECT_FALSE(cut(branch));
  EXPECT_TRUE(cut(sum));
  EXPECT_TRUE(cut(after));
}

}  // namespace
}  // namespace vdnn::testing
