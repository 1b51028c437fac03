// The ops that run again for a value (src/plan/recomputation.h), on a small chain.

#include "src/plan/recomputation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/plan/tapes.h"

namespace vdnn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ValueId kX = 0;
constexpr ValueId kFilter = 1;
constexpr ValueId kA = 2;
constexpr ValueId kB = 3;
constexpr ValueId kC = 4;

// x -> a -> b -> c, each by one op; b overwrites a. The last op updates the filter that the first one reads.
TapePtr chain() {
  TapeDraft draft;
  draft.value("x", ValueKind::kInput, 64);
  draft.value("filter", ValueKind::kParameter, 16);
  draft.value("a", ValueKind::kFeatureMap, 64);
  draft.value("b", ValueKind::kFeatureMap, 64);
  draft.value("c", ValueKind::kFeatureMap, 64);
  const ValueId gradient = draft.value("gradient", ValueKind::kParameterGradient, 16);
  const std::uint32_t layer = draft.layer("all");
  draft.op("a.forward", layer, Phase::kForward, {kX, kFilter}, {kA});
  draft.op("b.forward", layer, Phase::kForward, {kA}, {kB}, {{.write = 0, .read = 0}});
  draft.op("c.forward", layer, Phase::kForward, {kB}, {kC});
  draft.op("backward", layer, Phase::kBackward, {kX, kB, kC}, {gradient});
  draft.op("update", layer, Phase::kUpdate, {kFilter, gradient}, {kFilter});
  return draft.finish();
}

bool yes(ValueId) {
  return true;
}

TEST(Recomputation, RelaunchesNameTransientReadsAndOverwrittenOnes) {
  const TapePtr tape = chain();
  const std::vector<Relaunch> relaunches = relaunches_of(*tape);
  ASSERT_EQ(relaunches.size(), tape->ops().size());
  EXPECT_TRUE(relaunches[0].possible);
  EXPECT_THAT(relaunches[0].reads, ElementsAre(kX)) << "not the filter";
  ASSERT_EQ(relaunches[1].makes.size(), 1U);
  EXPECT_EQ(relaunches[1].makes[0].value, kB);
  EXPECT_EQ(relaunches[1].makes[0].overwrites, kA);
  EXPECT_EQ(relaunches[2].makes[0].overwrites, kNone);
  EXPECT_FALSE(relaunches[3].possible);
  EXPECT_FALSE(relaunches[4].possible);
}

TEST(Recomputation, SearchFindsProducersOfWhatIsMissingInTheTapesOrder) {
  const TapePtr tape = chain();
  const std::vector<Relaunch> relaunches = relaunches_of(*tape);
  RelaunchSearch search(*tape, relaunches);
  const auto only_the_input = [](ValueId value) { return value == kX; };
  ASSERT_TRUE(search.run(std::array{kC, kB}, yes, only_the_input));
  EXPECT_THAT(search.ops(), ElementsAre(0, 1, 2));
  EXPECT_EQ(search.last_reader(kA), 1U);
  EXPECT_EQ(search.last_reader(kB), 2U);
  EXPECT_EQ(search.last_reader(kC), kNone);
  const auto all_but_b = [](ValueId value) { return value != kB; };
  ASSERT_TRUE(search.run(std::array{kB}, yes, all_but_b));
  EXPECT_THAT(search.ops(), ElementsAre(1));
  EXPECT_FALSE(search.launches(0));
  EXPECT_EQ(search.last_reader(kB), kNone) << "a reader of the previous run";
}

TEST(Recomputation, SearchFailsForWhatCannotBeMade) {
  const TapePtr tape = chain();
  const std::vector<Relaunch> relaunches = relaunches_of(*tape);
  RelaunchSearch search(*tape, relaunches);
  const auto nothing = [](ValueId) { return false; };
  EXPECT_FALSE(search.run(std::array{kA}, yes, nothing)) << "no op makes the input";
  EXPECT_FALSE(search.run(
      std::array{kB}, [](ValueId value) { return value != kA; }, nothing));
  ASSERT_TRUE(search.run(std::vector<ValueId>(), yes, nothing));
  EXPECT_THAT(search.ops(), IsEmpty());
}

}  // namespace
}  // namespace vdnn::testing
