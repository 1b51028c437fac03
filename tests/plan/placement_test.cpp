#include "src/plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "tests/plan/tapes.h"
#include "vdnn/size.h"

namespace vdnn::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kNoGoal = 0;
constexpr std::uint64_t kAmpleGoal = std::uint64_t{1} << 60;
constexpr std::uint64_t kSeeds = 200;

Lifetime lifetime(std::uint32_t begin, std::uint32_t end, std::uint64_t bytes) {
  return {.bytes = bytes, .begin = begin, .end = end, .soft_begin = begin, .soft_end = end};
}

struct RandomLifetimes {
  std::uint64_t seed = 0;
  std::size_t count = 0;
  std::uint32_t moments = 0;
  bool soft = false;           // some may live longer than they need to
  bool looking_ahead = false;  // some places should be free for the next step early
};

// Lifetimes in order of allocation, like those of lifetimes().
std::vector<Lifetime> random_lifetimes(const RandomLifetimes& options) {
  SplitMix64 random(options.seed);
  const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random.below(limit)); };
  std::vector<Lifetime> all;
  for (std::size_t each = 0; each < options.count; ++each) {
    const std::uint32_t begin = below(options.moments);
    Lifetime one = lifetime(begin, begin + 1 + below(options.moments - begin), 1 + random.below(1000));
    if (options.soft && below(2) == 0) {
      one.soft_begin = below(one.begin + 1);
      one.soft_end = one.end + below(options.moments + 1 - one.end);
    }
    if (options.looking_ahead && below(4) == 0) {
      one.next_begin = one.soft_end + below(options.moments + 1 - one.soft_end);
    }
    all.push_back(one);
  }
  std::ranges::stable_sort(all, {}, &Lifetime::begin);
  for (std::size_t each = 0; each < all.size(); ++each) {
    all[each].buffer = static_cast<BufferId>(each);
  }
  return all;
}

// Half of the seeds have soft lives; half of those also look ahead to the next step.
RandomLifetimes variety(std::uint64_t seed) {
  return {.seed = seed,
          .count = 1 + seed % 40,
          .moments = 30,
          .soft = seed % 2 == 1,
          .looking_ahead = seed % 4 == 3};
}

enum class Lives : std::uint8_t { kMust, kMay };

bool meet_in_time(const Lifetime& a, const Lifetime& b, Lives lives) {
  return lives == Lives::kMust ? a.begin < b.end && b.begin < a.end
                               : a.soft_begin < b.soft_end && b.soft_begin < a.soft_end;
}

// Compares every buffer with every other and names the first two that share a byte at some moment.
std::string collision(const std::vector<Lifetime>& all, const Placement& placement, Lives lives) {
  const auto& offsets = placement.offsets;
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (meet_in_time(all[a], all[b], lives) && offsets[a] < offsets[b] + all[b].bytes &&
          offsets[b] < offsets[a] + all[a].bytes) {
        return std::to_string(a) + " and " + std::to_string(b);
      }
    }
  }
  return "";
}

// The promises of find_placement() about each result.
void expect_right_places(const std::vector<Lifetime>& all, const Placement& placement, Lives lives,
                         const std::string& reproducer) {
  ASSERT_EQ(placement.offsets.size(), all.size()) << reproducer;
  EXPECT_EQ(collision(all, placement, lives), "") << reproducer;
  std::uint64_t reach = 0;
  for (std::size_t each = 0; each < all.size(); ++each) {
    EXPECT_EQ(placement.offsets[each] % kAlignment, 0U) << reproducer << ", buffer " << each;
    reach = std::max(reach, placement.offsets[each] + round_up(all[each].bytes, kAlignment));
  }
  EXPECT_EQ(placement.bytes, reach) << reproducer;
}

// Computes the most live bytes by a look at every moment.
std::uint64_t alive_at_most(const std::vector<Lifetime>& all) {
  std::uint64_t most = 0;
  for (const Lifetime& start : all) {
    std::uint64_t alive = 0;
    for (const Lifetime& each : all) {
      alive += each.begin <= start.begin && start.begin < each.end ? round_up(each.bytes, kAlignment) : 0;
    }
    most = std::max(most, alive);
  }
  return most;
}

bool are_same(const std::vector<Lifetime>& a, const std::vector<Lifetime>& b) {
  return std::ranges::equal(a, b, [](const Lifetime& one, const Lifetime& other) {
    return one.begin == other.begin && one.end == other.end && one.soft_begin == other.soft_begin &&
           one.soft_end == other.soft_end;
  });
}

// --- lifetimes -----------------------------------------------------------------------------------

TEST(Lifetimes, AreFromTheAllocationToTheRelease) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll, AlgorithmPreference::kMemory);
  std::vector<std::string> text;  // Schedule.Prints shows the instructions
  for (const Lifetime& each : lifetimes(schedule)) {
    text.push_back(schedule.buffers[each.buffer].name + " " + std::to_string(each.bytes) + ": " +
                   std::to_string(each.begin) + " to " + std::to_string(each.end));
  }
  EXPECT_THAT(text, ElementsAre("images 64: 0 to 8", "targets 8: 2 to 16", "y 64: 6 to 15",
                                "metrics 8: 11 to 17", "p 64: 12 to 29", "y (prefetched) 64: 18 to 25",
                                "images (prefetched) 64: 21 to 28", "dw 16: 26 to 31"));
}

TEST(Lifetimes, AreNoLongerThanTheyAreAndOfTheDeviceAlone) {
  for (const Subject& subject : all_subjects()) {
    for (const Lifetime& each : lifetimes(subject.schedule)) {
      EXPECT_FALSE(subject.schedule.buffers[each.buffer].persistent) << subject.name;
      EXPECT_EQ(subject.schedule.buffers[each.buffer].space, Space::kDevice) << subject.name;
      EXPECT_EQ(each.soft_begin, each.begin) << subject.name;
      EXPECT_EQ(each.soft_end, each.end) << subject.name;
      EXPECT_EQ(each.next_begin, kNone) << subject.name;
    }
  }
}

TEST(Lifetimes, WithoutAReleaseLastToTheEnd) {
  Schedule schedule = schedule_of(*tiny_tape(), Policy::kOffloadNone);
  std::erase_if(schedule.instructions,
                [](const Instruction& it) { return it.kind == InstructionKind::kRelease; });
  for (const Lifetime& each : lifetimes(schedule)) {
    EXPECT_EQ(each.end, schedule.instructions.size());
  }
}

TEST(Lifetimes, MostLiveBytesIsTheSumAtTheFullestMoment) {
  EXPECT_EQ(most_live_bytes({}, kAlignment), 0U);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<Lifetime> all = random_lifetimes(variety(seed));
    EXPECT_EQ(most_live_bytes(all, kAlignment), alive_at_most(all)) << "seed " << seed;
  }
}

// --- placements ----------------------------------------------------------------------------------

TEST(Placement, OfNothingTakesNothing) {
  const Placement placement = find_placement({}, kAlignment, kNoGoal);
  EXPECT_TRUE(placement.offsets.empty());
  EXPECT_EQ(placement.bytes, 0U);
}

TEST(Placement, WhatIsAliveAtOnceNeverOverlaps) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<Lifetime> all = random_lifetimes(variety(seed));
    const std::uint64_t live = most_live_bytes(all, kAlignment);
    for (const std::uint64_t goal : {kNoGoal, live + live / 4, kAmpleGoal}) {
      const std::string reproducer = "seed " + std::to_string(seed) + ", goal " + std::to_string(goal);
      const Placement placement = find_placement(all, kAlignment, goal);
      expect_right_places(all, placement, Lives::kMust, reproducer);
      EXPECT_GE(placement.bytes, live) << reproducer;
    }
  }
}

TEST(Placement, IsDeterministic) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<Lifetime> all = random_lifetimes(variety(seed));
    const Placement first = find_placement(all, kAlignment, kNoGoal);
    const Placement second = find_placement(all, kAlignment, kNoGoal);
    EXPECT_EQ(first.offsets, second.offsets) << "seed " << seed;
    EXPECT_EQ(first.bytes, second.bytes) << "seed " << seed;
  }
}

// The feature maps of a chain. The backward pass reads the first one last.
std::vector<Lifetime> nested_lifetimes(std::uint32_t count) {
  std::vector<Lifetime> all;
  for (std::uint32_t each = 0; each < count; ++each) {
    all.push_back(lifetime(each, 2 * count - each, 1 + 37 * each % 1000));
  }
  return all;
}

TEST(Placement, NestedLifetimesAreAStackWithoutAHole) {
  for (const std::uint32_t count : {1U, 2U, 10U, 100U}) {
    const std::vector<Lifetime> all = nested_lifetimes(count);
    const Placement placement = find_placement(all, kAlignment, kNoGoal);
    expect_right_places(all, placement, Lives::kMust, std::to_string(count));
    EXPECT_EQ(placement.bytes, most_live_bytes(all, kAlignment)) << count;
  }
}

// Each gradient map lives until the next one is made, and gradient maps grow towards the input. A placement
// in the order of the maps never reuses memory, since no gap is large enough for the next map.
TEST(Placement, TwoGrowingBuffersInTurnTakeTheTwoLargest) {
  std::vector<Lifetime> all;
  for (std::uint32_t each = 0; each < 40; ++each) {
    all.push_back(lifetime(each, each + 2, kAlignment * (each + 1)));
  }
  const Placement placement = find_placement(all, kAlignment, kNoGoal);
  expect_right_places(all, placement, Lives::kMust, "growing");
  EXPECT_EQ(placement.bytes, kAlignment * (39 + 40));
}

TEST(Placement, EachBufferIsRoundedUpToTheAlignment) {
  const std::vector<Lifetime> all{lifetime(0, 3, 1), lifetime(1, 3, kAlignment + 1),
                                  lifetime(2, 3, kAlignment)};
  EXPECT_EQ(most_live_bytes(all, kAlignment), 4 * kAlignment);
  EXPECT_EQ(find_placement(all, kAlignment, kNoGoal).bytes, 4 * kAlignment);
  EXPECT_EQ(find_placement(all, 1, kNoGoal).bytes, 2 * kAlignment + 2);
}

// With an ample goal the search returns the placement of the first order that it tries. For some seeds
// another order needs fewer bytes, so the search has stopped at the goal.
TEST(Placement, TheGoalStopsTheSearch) {
  int worse = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<Lifetime> all = random_lifetimes({.seed = seed, .count = 40, .moments = 30});
    const Placement searched = find_placement(all, kAlignment, kNoGoal);
    const Placement first = find_placement(all, kAlignment, kAmpleGoal);
    EXPECT_EQ(find_placement(all, kAlignment, first.bytes).offsets, first.offsets) << "seed " << seed;
    EXPECT_LE(searched.bytes, first.bytes) << "seed " << seed;
    worse += searched.bytes < first.bytes ? 1 : 0;
    const std::uint64_t between = (searched.bytes + first.bytes) / 2;
    EXPECT_LE(find_placement(all, kAlignment, between).bytes, between) << "seed " << seed;
  }
  EXPECT_GT(worse, 0);
}

// For random lifetimes no order of placement is known to be good. Only a search over orders makes the peak
// nearly as small as the live bytes.
TEST(Placement, StaysNearWhatIsAlive) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<Lifetime> all = random_lifetimes({.seed = seed, .count = 40, .moments = 30});
    sum += static_cast<double>(find_placement(all, kAlignment, kNoGoal).bytes) /
           static_cast<double>(most_live_bytes(all, kAlignment));
  }
  EXPECT_LE(sum / kSeeds, 1.02);
}

// Large buffers of three sizes fill a fixed amount of memory at every moment. In addition, many small buffers
// live longer than the large ones.
std::vector<Lifetime> large_among_small(std::uint64_t seed) {
  constexpr std::uint32_t kMoments = 200;
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 20;
  constexpr std::uint64_t kRoom = 8 * kLarge;
  SplitMix64 random(seed);
  std::vector<std::uint64_t> alive(kMoments);
  std::vector<Lifetime> all;
  for (int tries = 0; tries < 2000; ++tries) {
    const auto begin = static_cast<std::uint32_t>(random.below(kMoments));
    const auto end = std::min(kMoments, begin + 1 + static_cast<std::uint32_t>(random.below(20)));
    const std::uint64_t bytes = kLarge << random.below(3);
    const auto during = [&](std::vector<std::uint64_t>& moments) {
      return std::span(moments).subspan(begin, end - begin);
    };
    if (std::ranges::max(during(alive)) + bytes <= kRoom) {
      std::ranges::for_each(during(alive), [bytes](std::uint64_t& now) { now += bytes; });
      all.push_back(lifetime(begin, end, bytes));
    }
  }
  for (int each = 0; each < 300; ++each) {
    const auto begin = static_cast<std::uint32_t>(random.below(kMoments));
    all.push_back(lifetime(begin, kMoments, kAlignment));
  }
  std::ranges::stable_sort(all, {}, &Lifetime::begin);
  return all;
}

// Regression: the overhead was 25 % instead of 9 %. Small buffers occupied the holes between large ones, and
// there were too many of them for a long search.
TEST(Placement, SmallBuffersTearNoHolesAmongLargeOnes) {
  constexpr std::uint64_t kFewSeeds = 20;
  double sum = 0;
  for (std::uint64_t seed = 0; seed < kFewSeeds; ++seed) {
    const std::vector<Lifetime> all = large_among_small(seed);
    const Placement placement = find_placement(all, kAlignment, kNoGoal);
    expect_right_places(all, placement, Lives::kMust, "seed " + std::to_string(seed));
    sum += static_cast<double>(placement.bytes) / static_cast<double>(most_live_bytes(all, kAlignment));
  }
  EXPECT_LE(sum / kFewSeeds, 1.1);
}

// --- soft lives ----------------------------------------------------------------------------------

TEST(Placement, LongerLivesAreGrantedWhereThereIsRoom) {
  for (std::uint64_t seed = 1; seed < kSeeds; seed += 4) {
    const std::vector<Lifetime> all = random_lifetimes(variety(seed));
    const Placement placement = find_placement(all, kAlignment, kAmpleGoal);
    expect_right_places(all, placement, Lives::kMay, "seed " + std::to_string(seed));
    std::vector<Lifetime> settled = all;
    settle(settled, placement, kAlignment);
    EXPECT_TRUE(are_same(settled, all)) << "seed " << seed;
  }
}

// A buffer may live longer only if the placement stays within the goal. Regression: a longer life was granted
// beyond the goal if the result was within 0.2 % of the live bytes.
TEST(Placement, LongerLivesGiveWayToAGoalThatIsWhatIsAlive) {
  std::vector<Lifetime> all{lifetime(0, 2, 999 * kAlignment), lifetime(0, 1, kAlignment),
                            lifetime(1, 2, kAlignment)};
  all[1].soft_end = 2;
  EXPECT_EQ(find_placement(all, kAlignment, 1000 * kAlignment).bytes, 1000 * kAlignment);
}

TEST(Placement, LongerLivesGiveWayToTheGoal) {
  std::vector<Lifetime> all{lifetime(0, 1, 10), lifetime(1, 2, 10)};
  all[0].soft_end = 2;
  EXPECT_EQ(find_placement(all, kAlignment, 2 * kAlignment).bytes, 2 * kAlignment);
  const Placement tight = find_placement(all, kAlignment, kAlignment);
  EXPECT_EQ(tight.bytes, kAlignment);
  settle(all, tight, kAlignment);
  EXPECT_EQ(all[0].soft_end, 1U);
}

// From `next_begin` on, a buffer's place stays free for the buffer's next step if memory permits. Otherwise
// another buffer of this step may use the place.
TEST(Placement, PlacesAreKeptForTheNextStepWhereThereIsRoom) {
  std::vector<Lifetime> all{lifetime(0, 1, 10), lifetime(2, 4, 10)};
  all[0].next_begin = 3;
  EXPECT_EQ(find_placement(all, kAlignment, kAmpleGoal).bytes, 2 * kAlignment);
  EXPECT_EQ(find_placement(all, kAlignment, kAlignment).bytes, kAlignment);
  all[0].next_begin = 4;
  EXPECT_EQ(find_placement(all, kAlignment, kAmpleGoal).bytes, kAlignment);
}

// The first pair of buffers that share a byte although one of them has a firm place for the next step.
std::string taken_place(const std::vector<Lifetime>& all, const Placement& placement) {
  for (std::size_t me = 0; me < all.size(); ++me) {
    for (std::size_t other = 0; other < all.size(); ++other) {
      const bool meet = all[me].next_is_firm && me != other && all[other].end > all[me].next_begin;
      if (meet && placement.offsets[me] < placement.offsets[other] + all[other].bytes &&
          placement.offsets[other] < placement.offsets[me] + all[me].bytes) {
        return std::to_string(me) + " and " + std::to_string(other);
      }
    }
  }
  return "";
}

TEST(Placement, FirmPlacesAreKeptForTheNextStepWhereThereIsNoRoom) {
  std::vector<Lifetime> all{lifetime(0, 1, 10), lifetime(2, 4, 10)};
  all[0].next_begin = 3;
  all[0].next_is_firm = true;
  EXPECT_EQ(find_placement(all, kAlignment, kAlignment).bytes, 2 * kAlignment);
  all[0].next_begin = 4;
  EXPECT_EQ(find_placement(all, kAlignment, kAlignment).bytes, kAlignment);
  int lost = 0;
  for (std::uint64_t seed = 3; seed < kSeeds; seed += 4) {
    all = random_lifetimes(variety(seed));
    const Placement soft = find_placement(all, kAlignment, kNoGoal);
    for (Lifetime& each : all) {
      each.next_is_firm = each.next_begin != kNone;
    }
    const Placement firm = find_placement(all, kAlignment, kNoGoal);
    expect_right_places(all, firm, Lives::kMust, "seed " + std::to_string(seed));
    EXPECT_EQ(taken_place(all, firm), "") << "seed " << seed;
    lost += taken_place(all, soft).empty() ? 0 : 1;
  }
  EXPECT_GT(lost, 0);
}

TEST(Placement, SettledLivesAllHoldAndNoneIsShorterThanRequired) {
  for (std::uint64_t seed = 1; seed < kSeeds; seed += 2) {
    const std::vector<Lifetime> all = random_lifetimes(variety(seed));
    const std::uint64_t live = most_live_bytes(all, kAlignment);
    for (const std::uint64_t goal : {kNoGoal, live + live / 4}) {
      const std::string reproducer = "seed " + std::to_string(seed) + ", goal " + std::to_string(goal);
      const Placement placement = find_placement(all, kAlignment, goal);
      std::vector<Lifetime> settled = all;
      settle(settled, placement, kAlignment);
      expect_right_places(settled, placement, Lives::kMay, reproducer);
      for (std::size_t each = 0; each < all.size(); ++each) {
        EXPECT_EQ(settled[each].begin, all[each].begin) << reproducer;
        EXPECT_EQ(settled[each].end, all[each].end) << reproducer;
        EXPECT_LE(all[each].soft_begin, settled[each].soft_begin) << reproducer;
        EXPECT_LE(settled[each].soft_begin, settled[each].begin) << reproducer;
        EXPECT_LE(settled[each].end, settled[each].soft_end) << reproducer;
        EXPECT_LE(settled[each].soft_end, all[each].soft_end) << reproducer;
      }
    }
  }
}

// Regression: first fit overlooked that a soft life may begin before the life of a buffer that is allocated
// earlier. Moreover, places reserved for the next step used memory that had not been granted to them.
TEST(Placement, PackedLivesAllHoldInNoMoreBytes) {
  int looking_ahead = 0;
  for (std::uint64_t seed = 0; seed < 5 * kSeeds; ++seed) {
    const std::string reproducer = "seed " + std::to_string(seed);
    std::vector<Lifetime> all = random_lifetimes(variety(seed));
    const Placement placement = find_placement(all, kAlignment, kNoGoal);
    settle(all, placement, kAlignment);
    const Placement packed = pack(all, placement.offsets, kAlignment);
    expect_right_places(all, packed, Lives::kMay, reproducer);
    EXPECT_LE(packed.bytes, placement.bytes) << reproducer;
    looking_ahead += std::ranges::any_of(all, [](const Lifetime& it) { return it.next_begin != kNone; });
  }
  EXPECT_GT(looking_ahead, 0);
}

// When a shorter life leaves a hole, the buffers above it move down.
TEST(Placement, PackingShorterLivesClosesTheHoles) {
  std::vector<Lifetime> all{lifetime(0, 2, 10), lifetime(1, 3, 10)};
  const Placement placement = find_placement(all, kAlignment, kNoGoal);
  EXPECT_EQ(placement.bytes, 2 * kAlignment);
  all[0].end = all[0].soft_end = 1;
  EXPECT_THAT(pack(all, placement.offsets, kAlignment).offsets, Each(0U));
}

// --- many ----------------------------------------------------------------------------------------

// First fit cannot place this number of lifetimes: they are placed in order of time.
constexpr std::uint32_t kMany = 6000;

TEST(Placement, ManyNestedLifetimesAreAStackWithoutAHole) {
  const std::vector<Lifetime> all = nested_lifetimes(kMany);
  const Placement placement = find_placement(all, kAlignment, kNoGoal);
  expect_right_places(all, placement, Lives::kMust, "nested");
  EXPECT_EQ(placement.bytes, most_live_bytes(all, kAlignment));
}

// Of each three successive buffers, the first ends before the third begins, as in a chain of layers.
// Regression: each buffer was placed on top of the previous one, so that the height grew with the length of
// the chain.
TEST(Placement, ManyThatFollowEachOtherTakeTurns) {
  std::vector<Lifetime> all = nested_lifetimes(kMany / 2);
  for (Lifetime& each : all) {
    each.end = each.soft_end += kMany;  // no release between the allocations
  }
  for (std::uint32_t each = 0; each < kMany; ++each) {
    all.push_back(lifetime(each, each + 3, 1 + each % 3));
  }
  const Placement placement = find_placement(all, kAlignment, kNoGoal);
  expect_right_places(all, placement, Lives::kMust, "following");
  EXPECT_LE(static_cast<double>(placement.bytes),
            1.1 * static_cast<double>(most_live_bytes(all, kAlignment)));
}

TEST(Placement, ManyRandomLifetimesNeverOverlap) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const std::string reproducer = "seed " + std::to_string(seed);
    std::vector<Lifetime> all = random_lifetimes(
        {.seed = seed, .count = kMany, .moments = 5000, .soft = seed > 0, .looking_ahead = seed > 1});
    const Placement placement = find_placement(all, kAlignment, kNoGoal);
    expect_right_places(all, placement, Lives::kMust, reproducer);
    settle(all, placement, kAlignment);
    expect_right_places(all, placement, Lives::kMay, reproducer);
    EXPECT_EQ(find_placement(all, kAlignment, kNoGoal).offsets, placement.offsets) << reproducer;
    const Placement packed = pack(all, placement.offsets, kAlignment);
    expect_right_places(all, packed, Lives::kMay, reproducer);
    EXPECT_LE(packed.bytes, placement.bytes) << reproducer;
  }
}

// --- schedules -----------------------------------------------------------------------------------

TEST(Placement, OfAScheduleGivesEachBufferOfAStepItsPlace) {
  for (const Subject& subject : all_subjects()) {
    Schedule schedule = subject.schedule;
    place_buffers(schedule, kAlignment, kNoGoal);
    const std::vector<Lifetime> all = lifetimes(schedule);
    Placement placement{.offsets = {}, .bytes = schedule.arena_bytes};
    for (const Lifetime& each : all) {
      ASSERT_TRUE(schedule.buffers[each.buffer].offset) << subject.name;
      placement.offsets.push_back(*schedule.buffers[each.buffer].offset);
    }
    expect_right_places(all, placement, Lives::kMust, subject.name);
    const auto placed = std::ranges::count_if(schedule.buffers,
                                              [](const Buffer& buffer) { return buffer.offset.has_value(); });
    EXPECT_EQ(static_cast<std::size_t>(placed), all.size()) << subject.name;
  }
}

}  // namespace
}  // namespace vdnn::testing
