// The plan of a step, held to all sets of tensors on small random steps, and to the budget on large ones.

#include "src/stash/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "tests/extent.h"

namespace vdnn::stash {
namespace {

// What is in use at an event besides the tensors themselves.
struct Noise {
  std::uint64_t most = 0;
};

// `count` tensors that are saved, and read in about the reverse order; some are read twice or never.
StepRecord random_step(std::mt19937_64& random, std::size_t count, Noise noise) {
  StepRecord step;
  std::uint64_t in_use = 0;
  const auto add = [&](StepEvent::Kind kind, std::uint32_t tensor) {
    step.events.push_back({.kind = kind,
                           .tensor = tensor,
                           .in_use_bytes = in_use + random() % (noise.most + 1),
                           .nanoseconds = step.events.size()});
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    step.tensors.push_back({.bytes = 1 + random() % 40, .signature = i, .stays = random() % 8 == 0});
    step.tensors.back().held_until = random() % 4 == 0 ? random() % (2 * count) : 0;
    in_use += step.tensors.back().bytes;
    add(StepEvent::Kind::kSave, i);
  }
  std::vector<std::uint32_t> order(count);
  std::iota(order.rbegin(), order.rend(), 0);
  for (std::size_t i = 0; i + 1 < count; ++i) {
    if (random() % 4 == 0) {
      std::swap(order[i], order[i + 1]);
    }
  }
  for (const std::uint32_t tensor : order) {
    if (random() % 8 != 0) {
      add(StepEvent::Kind::kRead, tensor);
    }
    if (random() % 8 == 0) {
      add(StepEvent::Kind::kRead, tensor);
    }
    in_use -= step.tensors[tensor].bytes;
    step.tensors[tensor].dropped_after = step.events.size();
  }
  return step;
}

// The model as the header says it, event by event: what is in use at the worst with these away.
std::uint64_t peak_with(const StepRecord& step, const StepLimits& limits, const std::vector<bool>& leaves) {
  std::vector<std::uint64_t> saved_since(step.tensors.size(), 0);
  std::vector<bool> is_saved(step.tensors.size(), false);
  std::vector<bool> is_away(step.tensors.size(), false);
  std::vector<bool> is_read(step.tensors.size(), false);
  std::uint64_t peak = 0;
  bool reads = false;
  for (std::size_t at = 0; at < step.events.size(); ++at) {
    const StepEvent& event = step.events[at];
    const bool saves = event.kind == StepEvent::Kind::kSave;
    reads = reads || !saves;
    if (!saves) {
      is_away[event.tensor] = false;
      is_read[event.tensor] = true;
    }
    std::uint64_t in_use = event.in_use_bytes + (reads ? limits.ahead_bytes : 0);
    for (std::size_t i = 0; i < step.tensors.size(); ++i) {
      const bool is_dropped = step.tensors[i].dropped_after <= at;
      in_use -= is_away[i] && leaves[i] && !is_dropped ? step.tensors[i].bytes : 0;
    }
    peak = std::max(peak, in_use);
    if (saves) {
      is_saved[event.tensor] = true;
      for (std::size_t i = 0; i < step.tensors.size(); ++i) {
        saved_since[i] += is_saved[i] ? step.tensors[event.tensor].bytes : 0;
      }
    }
    for (std::size_t i = 0; i < step.tensors.size(); ++i) {
      const bool is_released = is_saved[i] && saved_since[i] > limits.flight_bytes;
      const bool is_held = at + 1 < step.tensors[i].held_until;
      is_away[i] = is_away[i] || (is_released && !is_held && !is_read[i]);
    }
  }
  return peak;
}

std::uint64_t bytes_of_chosen(const StepRecord& step, const std::vector<bool>& leaves) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    bytes += leaves[i] ? step.tensors[i].bytes : 0;
  }
  return bytes;
}

bool is_allowed(const StepRecord& step, const std::vector<bool>& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i] && step.tensors[i].stays) {
      return false;
    }
  }
  return true;
}

// Of all sets; nothing: none keeps the budget.
std::optional<std::uint64_t> fewest_bytes(const StepRecord& step, const StepLimits& limits) {
  std::optional<std::uint64_t> fewest;
  const std::size_t count = step.tensors.size();
  for (std::uint64_t set = 0; set < (std::uint64_t{1} << count); ++set) {
    std::vector<bool> leaves(count);
    for (std::size_t i = 0; i < count; ++i) {
      leaves[i] = ((set >> i) & 1U) != 0;
    }
    const bool nothing = set == 0;
    const StepLimits of{.budget_bytes = limits.budget_bytes,
                        .ahead_bytes = nothing ? 0 : limits.ahead_bytes,
                        .flight_bytes = limits.flight_bytes};
    if (is_allowed(step, leaves) && peak_with(step, of, leaves) <= limits.budget_bytes) {
      const std::uint64_t bytes = bytes_of_chosen(step, leaves);
      fewest = std::min(fewest.value_or(bytes), bytes);
    }
  }
  return fewest;
}

TEST(StepPlan, PlannedPeakIsThatOfTheModel) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StepRecord step = random_step(random, 2 + random() % 8, {.most = random() % 60});
    const StepLimits limits{.ahead_bytes = random() % 4 * 10, .flight_bytes = random() % 4 * 15};
    std::vector<bool> leaves;
    for (const StepTensor& tensor : step.tensors) {
      leaves.push_back(!tensor.stays && random() % 2 == 0);
    }
    EXPECT_EQ(
        planned_peak(step, limits, leaves),
        peak_with(step, std::ranges::find(leaves, true) == leaves.end() ? StepLimits{} : limits, leaves));
  }
}

TEST(StepPlan, IsAsCheapAsTheCheapestOfAllSets) {
  std::uint64_t planned = 0;
  std::uint64_t impossible = 0;
  const std::uint64_t seeds = testing::extent({.usual = 1500, .under_sanitizers = 200, .in_long_run = 20000});
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StepRecord step = random_step(random, 2 + random() % 8, {.most = random() % 60});
    const StepLimits limits{.budget_bytes = 1 + random() % 200,
                            .ahead_bytes = random() % 4 * 10,
                            .flight_bytes = random() % 4 * 15};
    const std::vector<bool> chosen = choose_leaving(step, limits);
    ASSERT_TRUE(is_allowed(step, chosen));
    const std::optional<std::uint64_t> fewest = fewest_bytes(step, limits);
    if (fewest) {
      ASSERT_EQ(bytes_of_chosen(step, chosen), *fewest);
      ASSERT_TRUE(*fewest == 0 || peak_with(step, limits, chosen) <= limits.budget_bytes);
      planned += *fewest > 0 ? 1U : 0U;
    } else {
      ++impossible;
    }
  }
  EXPECT_GT(planned, seeds / 10) << "the steps do not ask for a plan";
  EXPECT_GT(impossible, seeds / 10);
}

// Where no set keeps the budget, no further tensor would lower the peak.
TEST(StepPlan, DoesAllThatCanBeDoneWhereTheBudgetCannotBeKept) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StepRecord step = random_step(random, 2 + random() % 8, {.most = 20});
    const StepLimits limits{.budget_bytes = 1, .ahead_bytes = 10, .flight_bytes = random() % 40};
    std::vector<bool> all(step.tensors.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = !step.tensors[i].stays;
    }
    EXPECT_EQ(peak_with(step, limits, choose_leaving(step, limits)), peak_with(step, limits, all));
  }
}

// As many tensors as a deep network saves: the search is cut off, and the budget kept at little more than the
// lower bound.
TEST(StepPlan, LargeStepsKeepTheBudgetNearTheLowerBound) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    StepRecord step = random_step(random, 400, {.most = 100});
    const StepLimits nothing_leaves{.budget_bytes = 1, .ahead_bytes = 80, .flight_bytes = 80};
    const std::uint64_t peak = peak_with(step, nothing_leaves, std::vector<bool>(step.tensors.size()));
    const StepLimits limits{.budget_bytes = peak / 2, .ahead_bytes = 80, .flight_bytes = 80};
    const std::vector<bool> chosen = choose_leaving(step, limits);
    EXPECT_LE(peak_with(step, limits, chosen), limits.budget_bytes);
    EXPECT_LE(bytes_of_chosen(step, chosen), (peak - limits.budget_bytes) * 21 / 20);
  }
}

TEST(StepPlan, NothingLeavesWhereAllFits) {
  std::mt19937_64 random(1);
  const StepRecord step = random_step(random, 30, {});
  std::uint64_t peak = 0;
  for (const StepEvent& event : step.events) {
    peak = std::max(peak, event.in_use_bytes);
  }
  const auto is_empty = [](const std::vector<bool>& leaves) { return std::ranges::count(leaves, true) == 0; };
  EXPECT_TRUE(is_empty(choose_leaving(step, {.budget_bytes = peak, .ahead_bytes = 1000})));
  EXPECT_FALSE(is_empty(choose_leaving(step, {.budget_bytes = peak - 1})));
}

TEST(StepPlan, WithoutABudgetAllLeavesThatCanBeReleasedBeforeItIsRead) {
  StepRecord step;
  for (std::uint32_t i = 0; i < 3; ++i) {
    step.tensors.push_back({.bytes = 10, .signature = i});
    step.events.push_back({.kind = StepEvent::Kind::kSave, .tensor = i, .in_use_bytes = 10 * (i + 1)});
  }
  for (std::uint32_t i = 3; i-- > 0;) {
    step.events.push_back({.kind = StepEvent::Kind::kRead, .tensor = i, .in_use_bytes = 10 * (i + 1)});
  }
  EXPECT_EQ(choose_leaving(step, {.flight_bytes = 10}), (std::vector<bool>{true, true, false}));
  // Its source is released with its own save, and read at once.
  EXPECT_EQ(choose_leaving(step, {.flight_bytes = 0}), (std::vector<bool>{true, true, false}));
  step.tensors[0].stays = true;
  EXPECT_EQ(choose_leaving(step, {.flight_bytes = 10}), (std::vector<bool>{false, true, false}));
}

// --- host memory -------------------------------------------------------------------------------------------

TEST(StepPlan, HostBlocksAreThoseThatAreInUseAtOnce) {
  StepRecord step;
  const auto save = [&](std::uint64_t bytes, std::size_t dropped_after) {
    const auto tensor = static_cast<std::uint32_t>(step.tensors.size());
    step.tensors.push_back({.bytes = bytes, .dropped_after = dropped_after});
    step.events.push_back({.kind = StepEvent::Kind::kSave, .tensor = tensor});
  };
  save(10, 5);
  save(10, 2);
  save(10, 5);  // after the one before was dropped
  save(20, 5);
  save(30, 5);
  EXPECT_EQ(host_blocks_of(step, {true, true, true, true, false}),
            (std::map<std::uint64_t, std::size_t>{{10, 2}, {20, 1}}));
}

}  // namespace
}  // namespace vdnn::stash
