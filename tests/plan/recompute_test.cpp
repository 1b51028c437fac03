// The meaning of a Recomputation (plan.h), instruction by instruction, on small tapes. On tapes of networks,
// every mixture of decisions that can be lowered becomes a correct schedule.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/random.h"
#include "tests/extent.h"
#include "tests/plan/told.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Three layers in a row and a loss. Backward reads `b`, and optionally `a`. Optionally `b.forward` has a
// second output, which backward also reads. `c` may overwrite `b`.
struct ChainOptions {
  bool backward_reads_a = true;
  bool b_has_mask = false;
  bool in_place = false;
};

TapePtr chain_tape(const ChainOptions& options = {}) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 64);
  const ValueId w = draft.value("w", ValueKind::kParameter, 16);
  const ValueId a = draft.value("a", ValueKind::kFeatureMap, 64);
  const ValueId b = draft.value("b", ValueKind::kFeatureMap, 64);
  const ValueId c = draft.value("c", ValueKind::kFeatureMap, 64);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId dc = draft.value("dc", ValueKind::kGradientMap, 64);
  const ValueId db = draft.value("db", ValueKind::kGradientMap, 64);
  const ValueId da = draft.value("da", ValueKind::kGradientMap, 64);
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 16);
  std::vector<ValueId> made{b};
  std::vector<ValueId> b_backward{db};
  if (options.b_has_mask) {
    made.push_back(draft.value("mask", ValueKind::kSaved, 16));
    b_backward.push_back(made.back());
  }
  if (options.backward_reads_a) {
    b_backward.push_back(a);
  }
  const std::vector<Overwrite> in_place{{.write = 0, .read = 0}};
  const std::uint32_t first = draft.layer("a", true);
  const std::uint32_t second = draft.layer("b");
  const std::uint32_t third = draft.layer("c");
  const std::uint32_t loss = draft.layer("loss");
  draft.op("a.forward", first, Phase::kForward, {x, w}, {a}, {}, {{"fast", 128}, {"lean", 0}});
  draft.op("b.forward", second, Phase::kForward, {a}, made,
           options.in_place ? in_place : std::vector<Overwrite>{});
  draft.op("c.forward", third, Phase::kForward, {b}, {c});
  draft.op("loss.forward", loss, Phase::kForward, {c}, {metrics});
  draft.op("loss.backward", loss, Phase::kBackward, {c}, {dc});
  draft.op("c.backward", third, Phase::kBackward, {dc, b}, {db});
  draft.op("b.backward", second, Phase::kBackward, b_backward, {da});
  draft.op("a.backward", first, Phase::kBackward, {da, x}, {dw});
  draft.op("w.update", first, Phase::kUpdate, {w, dw}, {w});
  return draft.finish();
}

// --- when ----------------------------------------------------------------------------------------

TEST(Recompute, MemoryIsGivenBackAfterTheLastUseAndTakenRightBeforeTheNext) {
  const TapePtr tape = chain_tape();
  const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{"b", "c.backward"}}));
  EXPECT_THAT(told(*tape, schedule, {"b.forward", "b.backward", {"b", "b (recomputed)", "a"}}),
              ElementsAre("launch b.forward", "launch c.forward", "release b", "launch loss.forward",
                          "launch loss.backward", "allocate b (recomputed)", "recompute b.forward",
                          "launch c.backward", "release b (recomputed)", "launch b.backward"));
  EXPECT_EQ(recomputed_ops(schedule), 1U);
  expect_right(*tape, schedule);
}

TEST(Recompute, WithoutAUseBeforeItMemoryIsGivenBackAfterTheProducer) {
  const TapePtr tape = chain_tape({.b_has_mask = true});
  const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{"mask", "b.backward"}}));
  EXPECT_THAT(told(*tape, schedule, {"b.forward", "c.forward", {"mask"}}),
              ElementsAre("launch b.forward", "release mask", "launch c.forward"));
  expect_right(*tape, schedule);
}

// The plan may place a recomputation earlier than the first op that needs the value.
TEST(Recompute, AValueThatIsMadeAgainStaysUntilItsLastUse) {
  const TapePtr tape = chain_tape();
  const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{"b", "loss.backward"}}));
  EXPECT_THAT(told(*tape, schedule, {"loss.forward", "b.backward", {"b", "b (recomputed)"}}),
              ElementsAre("launch loss.forward", "allocate b (recomputed)", "recompute b.forward",
                          "launch loss.backward", "launch c.backward", "release b (recomputed)",
                          "launch b.backward"));
  expect_right(*tape, schedule);
}

TEST(Recompute, WhatIsMissingIsMadeAgainFirstAndStaysWhereItIsRecomputedItself) {
  const TapePtr tape = chain_tape();
  const Plan plan = plan_with(*tape, {{"b", "c.backward"}, {"a", "c.backward"}});
  const Schedule schedule = make_schedule(*tape, plan);
  EXPECT_THAT(told(*tape, schedule, {"loss.backward", "a.backward", {"a (recomputed)", "b (recomputed)"}}),
              ElementsAre("launch loss.backward", "allocate a (recomputed)", "recompute a.forward",
                          "allocate b (recomputed)", "recompute b.forward", "launch c.backward",
                          "release b (recomputed)", "launch b.backward", "release a (recomputed)",
                          "launch a.backward"));
  EXPECT_EQ(recomputed_ops(schedule), 2U) << "not run again for its own use";
  expect_right(*tape, schedule);
}

TEST(Recompute, WhatIsMissingAndRecomputedLaterPasses) {
  const TapePtr tape = chain_tape();
  const Plan plan = plan_with(*tape, {{"b", "c.backward"}, {"a", "b.backward"}});
  const Schedule schedule = make_schedule(*tape, plan);
  EXPECT_THAT(
      told(*tape, schedule, {"loss.backward", "a.backward", {"a (recomputed)", "b (recomputed)"}}),
      ElementsAre("launch loss.backward", "allocate a (recomputed)", "recompute a.forward",
                  "allocate b (recomputed)", "recompute b.forward", "release a (recomputed)",
                  "launch c.backward", "release b (recomputed)", "allocate a (recomputed)",
                  "recompute a.forward", "launch b.backward", "release a (recomputed)", "launch a.backward"));
  expect_right(*tape, schedule);
}

TEST(Recompute, SideOutputsThatAreRecomputedLaterPass) {
  const TapePtr tape = chain_tape({.b_has_mask = true});
  for (const bool together : {false, true}) {
    const Plan plan =
        plan_with(*tape, {{"b", "c.backward"}, {"mask", together ? "c.backward" : "b.backward"}});
    const Schedule schedule = make_schedule(*tape, plan);
    EXPECT_EQ(recomputed_ops(schedule), together ? 1U : 2U);
    expect_right(*tape, schedule);
  }
}

TEST(Recompute, WhatIsOnlyPassingIsGivenBackAtOnce) {
  const TapePtr tape = chain_tape({.backward_reads_a = false});
  const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{"b", "c.backward"}}));
  EXPECT_THAT(told(*tape, schedule, {"loss.backward", "c.backward", {"a (recomputed)", "b (recomputed)"}}),
              ElementsAre("launch loss.backward", "allocate a (recomputed)", "recompute a.forward",
                          "allocate b (recomputed)", "recompute b.forward", "release a (recomputed)",
                          "launch c.backward"));
  expect_right(*tape, schedule);
}

// The prefetch of `a` comes before the recomputation of `b`, which therefore need not recompute `a`.
TEST(Recompute, ReadsWhatHasBeenFetched) {
  const TapePtr tape = chain_tape();
  Plan plan = plan_with(*tape, {{"b", "c.backward"}});
  plan.transfers.push_back(transfer(*tape, "a", "b.forward", "b.forward", "loss.backward"));
  const Schedule schedule = make_schedule(*tape, plan);
  EXPECT_EQ(recomputed_ops(schedule), 1U);
  EXPECT_EQ(operand_name(schedule, recompute_of(*tape, schedule, "b.forward"), 0), "a (prefetched)");
  expect_right(*tape, schedule);
}

// --- with what -----------------------------------------------------------------------------------

TEST(Recompute, TakesTheSameAlgorithmAndItsWorkspace) {
  const TapePtr tape = chain_tape({.backward_reads_a = false});
  Plan plan = plan_with(*tape, {{"b", "c.backward"}});
  const std::string workspace = "a.forward.workspace";
  const Schedule fast = make_schedule(*tape, plan);
  EXPECT_EQ(operand_name(fast, recompute_of(*tape, fast, "a.forward"), 3), workspace);
  EXPECT_EQ(fast.buffers[recompute_of(*tape, fast, "a.forward").operands[3]].bytes, 128U);
  EXPECT_THAT(told(*tape, fast, {"loss.backward", "c.backward", {workspace}}),
              ElementsAre("launch loss.backward", "allocate " + workspace, "recompute a.forward",
                          "release " + workspace, "recompute b.forward", "launch c.backward"));
  plan.algorithms[op_named(*tape, "a.forward")] = 1;
  const Schedule lean = make_schedule(*tape, plan);
  EXPECT_EQ(operand_name(lean, recompute_of(*tape, lean, "a.forward"), 3), "none");
  expect_right(*tape, fast);
  expect_right(*tape, lean);
}

// The op also writes results that are still on the device or not needed; they go to memory that no op reads.
TEST(Recompute, SideOutputsThatAreStillThereGoToScratch) {
  const TapePtr tape = chain_tape({.b_has_mask = true});
  for (const auto& [dropped, kept, with] :
       {std::tuple("b", "mask", "c.backward"), std::tuple("mask", "b", "c.backward")}) {
    const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{dropped, with}}));
    const std::string scratch = std::string(kept) + " (recomputed)";
    EXPECT_THAT(told(*tape, schedule, {"loss.backward", "c.backward", {kept, scratch}}),
                ElementsAre("launch loss.backward", "allocate " + scratch, "recompute b.forward",
                            "release " + scratch, "launch c.backward"));
    expect_right(*tape, schedule, dropped);
  }
}

TEST(Recompute, OverwritesInPlaceAsTheFirstTime) {
  const TapePtr tape = chain_tape({.backward_reads_a = false, .in_place = true});
  const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{"b", "c.backward"}}));
  const Instruction& again = recompute_of(*tape, schedule, "b.forward");
  EXPECT_EQ(again.operands[0], again.operands[1]);
  EXPECT_THAT(
      told(*tape, schedule, {"loss.backward", "b.backward", {"a (recomputed)", "b (recomputed)"}}),
      ElementsAre("launch loss.backward", "allocate a (recomputed)", "recompute a.forward",
                  "recompute b.forward", "launch c.backward", "release a (recomputed)", "launch b.backward"));
  expect_right(*tape, schedule);
}

// Regression: `b` was still on the device, but lowering forgot it and never released it.
TEST(Recompute, WhatIsStillThereIsNotReplacedInPlace) {
  const TapePtr tape = chain_tape({.backward_reads_a = false, .b_has_mask = true, .in_place = true});
  const Schedule schedule = make_schedule(*tape, plan_with(*tape, {{"mask", "c.backward"}}));
  expect_right(*tape, schedule);
}

// Regression: a recomputation of `mask` counted as a request to keep `b`.
TEST(Recompute, ADropThatIsStillToComeTakesPlace) {
  const TapePtr tape = chain_tape({.b_has_mask = true});
  const Schedule schedule =
      make_schedule(*tape, plan_with(*tape, {{"mask", "c.forward"}, {"b", "c.backward"}}));
  EXPECT_THAT(told(*tape, schedule, {"b.forward", "loss.forward", {"b"}}),
              ElementsAre("launch b.forward", "recompute b.forward", "launch c.forward", "release b",
                          "launch loss.forward"));
  expect_right(*tape, schedule);
}

// --- with transfers ------------------------------------------------------------------------------

TEST(Recompute, ReleaseWithIsObeyedWhereItComesLaterThanTheCopy) {
  const TapePtr tape = chain_tape();
  for (const std::string late : {"b.forward", "c.forward", "loss.forward"}) {
    Plan plan = plan_of(*tape, Policy::kOffloadNone);
    plan.transfers.push_back(transfer(*tape, "a", "b.forward", late, "c.backward"));
    const Schedule schedule = make_schedule(*tape, plan);
    const auto story = told(*tape, schedule, {"b.forward", "c.backward", {"a"}});
    const auto released = std::ranges::find(story, "release a");
    ASSERT_NE(released, story.end()) << late;
    EXPECT_EQ(*(released - 1), "launch " + late);
    expect_right(*tape, schedule, late);
  }
}

// Regression: lowering took a value with a copy on the host for a temporary one and released it too early.
TEST(Recompute, LeavesWhatIsToBeReleasedLaterWhereItIs) {
  const TapePtr tape = chain_tape({.b_has_mask = true});
  for (const std::string offloaded : {"a", "mask"}) {
    Plan plan = plan_with(*tape, {{"b", "loss.backward"}});
    plan.transfers.push_back(transfer(*tape, offloaded, "b.forward", "loss.backward", "b.backward"));
    expect_right(*tape, make_schedule(*tape, plan), offloaded);
  }
}

// --- what cannot be ------------------------------------------------------------------------------

TEST(Recompute, InputsCannotBeMadeAgain) {
  const TapePtr tape = chain_tape();
  EXPECT_THAT(refusal(*tape, plan_with(*tape, {{"x", "a.backward"}})),
              AllOf(HasSubstr("x recomputed"), HasSubstr("a.backward")));
}

TEST(Recompute, NothingIsMadeAgainBeforeItIsMade) {
  const TapePtr tape = chain_tape();
  EXPECT_THAT(refusal(*tape, plan_with(*tape, {{"b", "b.forward"}})),
              AllOf(HasSubstr("b recomputed"), HasSubstr("b.forward")));
}

TEST(Recompute, BackwardIsNotLaunchedAgain) {
  const TapePtr tape = chain_tape();
  EXPECT_THAT(refusal(*tape, plan_with(*tape, {{"dw", "w.update"}})),
              AllOf(HasSubstr("dw recomputed"), HasSubstr("w.update")));
}

TEST(Recompute, WhatIsOnTheHostHasToBeFetchedBefore) {
  const TapePtr tape = chain_tape();
  Plan plan = plan_with(*tape, {{"b", "c.backward"}});
  plan.transfers.push_back(transfer(*tape, "a", "b.forward", "b.forward", "b.backward"));
  EXPECT_THAT(refusal(*tape, plan), AllOf(HasSubstr("a recomputed"), HasSubstr("c.backward")));
}

TEST(Recompute, NothingMovesFromWhereItIsNot) {
  const TapePtr tape = chain_tape();
  const auto refusal_of = [&](const std::string& offload, const std::string& release,
                              const std::string& fetch) {
    Plan plan = plan_of(*tape, Policy::kOffloadNone);
    plan.transfers.push_back(transfer(*tape, "b", offload, release, fetch));
    return refusal(*tape, plan);
  };
  EXPECT_THAT(refusal_of("a.forward", "c.forward", "c.backward"),
              HasSubstr("b offloaded with a.forward, but it is not on the device"));
  EXPECT_THAT(refusal_of("c.forward", "a.forward", "c.backward"),
              HasSubstr("b released with a.forward, but it is not on the device"));
  EXPECT_THAT(refusal_of("c.forward", "a.backward", "w.update"), HasSubstr("b released with a.backward"));
  EXPECT_THAT(refusal_of("c.forward", "c.forward", "b.forward"),
              HasSubstr("b fetched with b.forward, but it is not on the host"));
}

TEST(Recompute, NoOpIsLeftWithoutAnOperand) {
  const TapePtr tape = chain_tape();
  EXPECT_THAT(refusal(*tape, plan_with(*tape, {{"b", "b.backward"}})), IsEmpty()) << "after its last use";
  Plan plan = plan_of(*tape, Policy::kOffloadNone);
  plan.transfers.push_back(transfer(*tape, "b", "b.forward", "b.forward", "c.backward"));
  EXPECT_THAT(refusal(*tape, plan), HasSubstr("leaves c.forward without b"));
  plan.transfers[0] = transfer(*tape, "b", "c.forward", "c.forward", "b.backward");
  EXPECT_THAT(refusal(*tape, plan), HasSubstr("leaves c.backward without b"));
}

// --- any mixture ---------------------------------------------------------------------------------

// Chooses nothing, a copy or a recomputation for each value with a gap between two uses, at any time that is
// not plainly wrong.
Plan random_plan(const Tape& tape, SplitMix64& random) {
  Plan plan = plan_of(tape, Policy::kOffloadNone);
  plan.placement_alignment = random.below(2) == 0 ? 0 : 64;
  const auto between = [&](OpId first, OpId last) {
    return first + static_cast<OpId>(random.below(last - first + 1));
  };
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    const auto readers = tape.readers(id);
    const bool transient = !tape.value(id).persistent() && tape.producer(id) != kNone;
    if (!transient || readers.empty() || random.below(2) == 0) {
      continue;
    }
    const std::size_t gap = random.below(readers.size());
    const OpId before = gap == 0 ? tape.producer(id) : readers[gap - 1];
    const OpId after = readers[gap];
    if (random.below(2) == 0 && after > before + 1) {
      const OpId release = between(before, after - 1);
      plan.transfers.push_back({.value = id,
                                .offload_with = between(tape.producer(id), release),
                                .release_with = release,
                                .prefetch_with = between(release + 1, after)});
    } else if (tape.op(tape.producer(id)).phase == Phase::kForward) {
      plan.recomputations.push_back({.value = id, .with = between(before + 1, after)});
    }
  }
  std::ranges::stable_sort(plan.transfers, {}, &Transfer::offload_with);
  return plan;
}

TEST(Recompute, WhatCanBeLoweredIsRight) {
  const std::uint64_t plans = extent({.usual = 150, .under_sanitizers = 30, .in_long_run = 1000});
  for (const auto& [name, tape] : std::vector<std::pair<std::string, TapePtr>>{
           {"chain", chain_tape()},
           {"in place", chain_tape({.backward_reads_a = false, .b_has_mask = true, .in_place = true})},
           {"forked", forked_tape()},
           {"forked, pooling with X and Y", forked_tape({.pooling_reads_x_and_y = true})},
           {"lenet", model_tape("lenet")}}) {
    std::size_t lowered = 0;
    for (std::uint64_t seed = 0; seed < plans; ++seed) {
      SplitMix64 random(seed);
      const Plan plan = random_plan(*tape, random);
      if (refusal(*tape, plan).empty()) {
        ++lowered;
        expect_right(*tape, make_schedule(*tape, plan), name + ", seed " + std::to_string(seed));
      }
    }
    EXPECT_GT(lowered, plans / 2) << name;
  }
}

}  // namespace
}  // namespace vdnn::testing
