// Several lives of a value in one step (plan.h): instruction by instruction on a small tape, and in random
// plans on tapes of networks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/plan/lives_plan.h"
#include "tests/plan/told.h"

namespace vdnn::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// One op makes `y` and four read it. Between any two readers is an op that does not read `y`.
TapePtr read_often_tape() {
  TapeDraft draft;
  const auto map = [&](const std::string& name) { return draft.value(name, ValueKind::kFeatureMap, 64); };
  const auto gradient = [&](const std::string& name) {
    return draft.value(name, ValueKind::kGradientMap, 64);
  };
  const ValueId x = draft.value("x", ValueKind::kInput, 64);
  const ValueId w = draft.value("w", ValueKind::kParameter, 16);
  const ValueId y = map("y");
  const ValueId u = map("u");
  const ValueId v = map("v");
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  std::vector<ValueId> g;
  for (const std::string number : {"1", "2", "3", "4", "5"}) {
    g.push_back(gradient("g" + number));
  }
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 16);
  const std::uint32_t layer = draft.layer("all");
  draft.op("make", layer, Phase::kForward, {x, w}, {y});
  draft.op("use1", layer, Phase::kForward, {y}, {u});
  draft.op("pass1", layer, Phase::kForward, {u}, {v});
  draft.op("loss", layer, Phase::kForward, {v}, {metrics});
  draft.op("loss.backward", layer, Phase::kBackward, {v}, {g[0]});
  draft.op("use2", layer, Phase::kBackward, {g[0], y}, {g[1]});
  draft.op("pass2", layer, Phase::kBackward, {g[1]}, {g[2]});
  draft.op("use3", layer, Phase::kBackward, {g[2], y}, {g[3]});
  draft.op("pass3", layer, Phase::kBackward, {g[3]}, {g[4]});
  draft.op("use4", layer, Phase::kBackward, {g[4], y, x}, {dw});
  draft.op("update", layer, Phase::kUpdate, {w, dw}, {w});
  return draft.finish();
}

// A transfer that fetches an earlier copy instead of making its own.
Transfer from_the_copy(const Tape& tape, const std::string& release_with, const std::string& prefetch_with) {
  return {.value = value_named(tape, "y"),
          .release_with = op_named(tape, release_with),
          .prefetch_with = op_named(tape, prefetch_with)};
}

struct Decisions {
  std::vector<Transfer> transfers;
  std::vector<Drop> drops;
};

Plan plan_of_lives(const Tape& tape, const Decisions& decisions) {
  Plan plan = plan_with(tape, decisions.drops);
  plan.transfers = decisions.transfers;
  return plan;
}

// All instructions on `y`, with the ops around them.
std::vector<std::string> told_of_y(const Tape& tape, const Decisions& decisions) {
  const Schedule schedule = make_schedule(tape, plan_of_lives(tape, decisions));
  expect_right(tape, schedule);
  return told(tape, schedule, {"make", "use4", {"y", "y (host)", "y (prefetched)", "y (recomputed)"}});
}

TEST(Lives, OneCopyIsFetchedTwice) {
  const TapePtr tape = read_often_tape();
  EXPECT_THAT(told_of_y(*tape, {.transfers = {transfer(*tape, "y", "make", "use1", "use2"),
                                              from_the_copy(*tape, "use2", "use3")}}),
              ElementsAre("launch make", "allocate y (host)", "offload y", "launch use1", "release y",
                          "launch pass1", "launch loss", "launch loss.backward", "allocate y (prefetched)",
                          "prefetch y (prefetched)", "launch use2", "release y (prefetched)", "launch pass2",
                          "allocate y (prefetched)", "prefetch y (prefetched)", "release y (host)",
                          "launch use3", "launch pass3", "launch use4"));
}

TEST(Lives, AValueIsMadeAgainForEveryReader) {
  const TapePtr tape = read_often_tape();
  EXPECT_THAT(told_of_y(*tape, {.drops = {{"y", "use2"}, {"y", "use3"}, {"y", "use4"}}}),
              ElementsAre("launch make", "launch use1", "release y", "launch pass1", "launch loss",
                          "launch loss.backward", "allocate y (recomputed)", "recompute make", "launch use2",
                          "release y (recomputed)", "launch pass2", "allocate y (recomputed)",
                          "recompute make", "launch use3", "release y (recomputed)", "launch pass3",
                          "allocate y (recomputed)", "recompute make", "launch use4"));
}

// The host keeps its copy while the value is on the device, fetched or recomputed.
TEST(Lives, AFetchFollowsARecomputationThatFollowsAFetch) {
  const TapePtr tape = read_often_tape();
  EXPECT_THAT(
      told_of_y(*tape, {.transfers = {transfer(*tape, "y", "make", "use1", "use2"),
                                      from_the_copy(*tape, "use3", "use4")},
                        .drops = {{"y", "use3"}}}),
      ElementsAre("launch make", "allocate y (host)", "offload y", "launch use1", "release y", "launch pass1",
                  "launch loss", "launch loss.backward", "allocate y (prefetched)", "prefetch y (prefetched)",
                  "launch use2", "release y (prefetched)", "launch pass2", "allocate y (recomputed)",
                  "recompute make", "launch use3", "release y (recomputed)", "launch pass3",
                  "allocate y (prefetched)", "prefetch y (prefetched)", "release y (host)", "launch use4"));
}

TEST(Lives, WhatIsMadeAgainIsOffloaded) {
  const TapePtr tape = read_often_tape();
  for (const std::string offload : {"use2", "pass2"}) {
    const auto story = told_of_y(
        *tape, {.transfers = {transfer(*tape, "y", offload, "pass2", "use3")}, .drops = {{"y", "use2"}}});
    EXPECT_THAT(story, Not(Contains("offload y"))) << "the first life makes no copy";
    EXPECT_THAT(story, IsSupersetOf({"offload y (recomputed)", "release y (recomputed)"}));
  }
}

TEST(Lives, ALaterTransferCopiesAnew) {
  const TapePtr tape = read_often_tape();
  const auto story = told_of_y(*tape, {.transfers = {transfer(*tape, "y", "make", "use1", "use2"),
                                                     transfer(*tape, "y", "use2", "use2", "use3")}});
  EXPECT_EQ(std::ranges::count(story, "allocate y (host)"), 2);
  EXPECT_EQ(std::ranges::count(story, "release y (host)"), 2);
}

TEST(Lives, InputsReturnTwiceToo) {
  const TapePtr tape = read_often_tape();
  Plan plan = plan_with(*tape, {{"y", "use3"}});
  plan.transfers = {transfer(*tape, "x", "make", "use1", "use3"),
                    {.value = value_named(*tape, "x"),
                     .release_with = op_named(*tape, "use3"),
                     .prefetch_with = op_named(*tape, "use4")}};
  expect_right(*tape, make_schedule(*tape, plan));
}

TEST(Lives, WhatIsFetchedForNoUseIsGivenBackAtOnce) {
  const TapePtr tape = read_often_tape();
  const auto story = told_of_y(
      *tape, {.transfers = {transfer(*tape, "y", "make", "use1", "loss")}, .drops = {{"y", "use2"}}});
  const auto fetched = std::ranges::find(story, "prefetch y (prefetched)");
  EXPECT_THAT(
      std::vector<std::string>(fetched, story.end()),
      ElementsAre("prefetch y (prefetched)", "release y (host)", "launch loss", "release y (prefetched)",
                  "launch loss.backward", "allocate y (recomputed)", "recompute make", "launch use2",
                  "launch pass2", "launch use3", "launch pass3", "launch use4"));
}

// --- what cannot be ------------------------------------------------------------------------------

std::string refusal_of_lives(const Tape& tape, const Decisions& decisions) {
  return refusal(tape, plan_of_lives(tape, decisions));
}

TEST(Lives, NothingIsFetchedWithoutACopy) {
  const TapePtr tape = read_often_tape();
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {from_the_copy(*tape, "use1", "use2")}}),
              HasSubstr("y released with use1, but it has no copy on the host"));
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {from_the_copy(*tape, "use1", "use2"),
                                                     transfer(*tape, "y", "use2", "use2", "use3")}}),
              HasSubstr("y released with use1, but it has no copy on the host"))
      << "the plan makes the copy later";
}

TEST(Lives, LivesDoNotOverlap) {
  const TapePtr tape = read_often_tape();
  const Transfer first = transfer(*tape, "y", "make", "use1", "use2");
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {first, from_the_copy(*tape, "loss", "use3")}}),
              HasSubstr("y released with loss, but it is not on the device"));
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {first}, .drops = {{"y", "loss"}}}),
              HasSubstr("y recomputed with loss, but it is on the host"));
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {first}, .drops = {{"y", "use2"}}}),
              HasSubstr("y recomputed with use2, but it is on the device already"));
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {transfer(*tape, "y", "make", "pass3", "use3")}}),
              HasSubstr("y fetched with use3, but it is on the device already"));
}

TEST(Lives, ACopyIsFetchedBeforeTheNextIsMade) {
  const TapePtr tape = read_often_tape();
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {transfer(*tape, "y", "make", "use1", "use2"),
                                                     transfer(*tape, "y", "use1", "use2", "use3")}}),
              AllOf(HasSubstr("y offloaded with use1"), HasSubstr("earlier copy")));
}

TEST(Lives, WhatLeavesComesBack) {
  const TapePtr tape = read_often_tape();
  Transfer lost = transfer(*tape, "y", "make", "use4", "update");
  lost.prefetch_with = kNone;
  EXPECT_THAT(refusal_of_lives(*tape, {.transfers = {lost}}), HasSubstr("leaves y on the host"));
}

// Regression: the transfer released the memory although another value was in it.
TEST(Lives, WhatHasBeenOverwrittenDoesNotLeave) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 64);
  const ValueId a = draft.value("a", ValueKind::kFeatureMap, 64);
  const ValueId b = draft.value("b", ValueKind::kFeatureMap, 64);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const std::uint32_t layer = draft.layer("all");
  draft.op("first", layer, Phase::kForward, {x}, {a});
  draft.op("second", layer, Phase::kForward, {a}, {b}, {{.write = 0, .read = 0}});
  draft.op("loss", layer, Phase::kForward, {b}, {metrics});
  draft.op("other", layer, Phase::kBackward, {x}, {draft.value("g", ValueKind::kGradientMap, 8)});
  const TapePtr tape = draft.finish();
  Plan plan = plan_with(*tape, {});
  plan.transfers = {transfer(*tape, "a", "first", "second", "other")};
  EXPECT_THAT(refusal(*tape, plan), HasSubstr("a released with second, but it is not on the device"));
}

// --- any mixture ---------------------------------------------------------------------------------

struct LivesCount {
  std::size_t fetched_again = 0;  // values that are fetched more than once
  std::size_t made_again = 0;     // ops that are launched more than twice
  std::size_t mixed = 0;          // values that are both fetched and made again
};

LivesCount count_lives(const Tape& tape, const Plan& plan) {
  LivesCount count;
  for (ValueId value = 0; value < tape.values().size(); ++value) {
    const auto fetches = std::ranges::count(plan.transfers, value, &Transfer::value);
    const auto makes = std::ranges::count(plan.recomputations, value, &Recomputation::value);
    count.fetched_again += fetches > 1 ? 1 : 0;
    count.made_again += makes > 1 ? 1 : 0;
    count.mixed += fetches > 0 && makes > 0 ? 1 : 0;
  }
  return count;
}

TEST(Lives, RandomPlansOfThemAreRight) {
  constexpr std::uint64_t kSeeds = 6;
  LivesCount sum;
  for (const auto& [name, tape] : std::vector<std::pair<std::string, TapePtr>>{
           {"read often", read_often_tape()},
           {"forked", forked_tape()},
           {"forked, pooling with X and Y", forked_tape({.pooling_reads_x_and_y = true})},
           {"collective", collective_tape()},
           {"lenet", model_tape("lenet")}}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Plan plan = lives_plan(*tape, seed, seed % 2 == 0 ? 0 : 64);
      const LivesCount count = count_lives(*tape, plan);
      sum.fetched_again += count.fetched_again;
      sum.made_again += count.made_again;
      sum.mixed += count.mixed;
      expect_right(*tape, make_schedule(*tape, plan), name + ", seed " + std::to_string(seed));
    }
  }
  // With lower counts, the plans would hardly contain values with several lives.
  EXPECT_GT(sum.fetched_again, 2 * kSeeds);
  EXPECT_GT(sum.made_again, 2 * kSeeds);
  EXPECT_GT(sum.mixed, 2 * kSeeds);
}

}  // namespace
}  // namespace vdnn::testing
