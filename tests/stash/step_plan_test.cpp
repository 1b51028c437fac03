// Compares the plan of small random steps with all sets of tensors, and that of large steps with the budget.

#include "src/stash/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "src/stash/fetch_schedule.h"
#include "tests/extent.h"

namespace vdnn::stash::step_plan_test {
namespace {

// Bytes in use at an event in addition to the tensors.
struct Noise {
  std::uint64_t most = 0;
};

// The step saves `count` tensors and reads them in roughly the reverse order in each pass over the graph. It
// reads some twice or never.
StepRecord random_step(std::mt19937_64& random, std::size_t count, Noise noise, std::size_t passes = 1) {
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
  const auto read = [&](std::uint32_t tensor) {
    if (random() % 8 != 0) {
      add(StepEvent::Kind::kRead, tensor);
    }
    if (random() % 8 == 0) {
      add(StepEvent::Kind::kRead, tensor);
    }
    if (random() % 16 != 0) {
      step.events.back().ends_pass = step.events.back().kind == StepEvent::Kind::kRead;
    }
  };
  for (std::size_t pass = 1; pass < passes; ++pass) {
    std::ranges::for_each(order, read);
  }
  for (const std::uint32_t tensor : order) {
    read(tensor);
    in_use -= step.tensors[tensor].bytes;
    step.tensors[tensor].dropped_after = step.events.size();
  }
  return step;
}

// Replays a step event by event with a set of leaving tensors.
class Run {
 public:
  Run(const StepRecord& step, const std::vector<bool>& leaves, std::uint64_t flight_bytes)
      : step_(step),
        leaves_(leaves),
        flight_bytes_(flight_bytes),
        states_(step.tensors.size()),
        saved_since_(step.tensors.size(), 0) {}

  bool is_away(std::size_t tensor) const { return states_[tensor].away; }
  std::size_t reads() const { return reads_; }
  // Bytes in use at the next event.
  std::uint64_t in_use() const {
    std::uint64_t in_use = step_.events[at_].in_use_bytes;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      in_use -= takes_nothing(i) && !is_next_read(i) ? step_.tensors[i].bytes : 0;
    }
    return in_use;
  }
  // Passes the next event; returns true if that is a read.
  bool pass() {
    const StepEvent& event = step_.events[at_++];
    State& state = states_[event.tensor];
    if (event.kind == StepEvent::Kind::kRead) {
      state.is_in_pass = !event.ends_pass;
      state.held_by_reader_to = at_;
      state.fetched = false;
      ++state.reads;
      ++reads_;
    } else {
      state.saved = true;
      for (std::size_t i = 0; i < states_.size(); ++i) {
        saved_since_[i] += states_[i].saved ? step_.tensors[event.tensor].bytes : 0;
      }
    }
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const bool is_released = states_[i].saved && saved_since_[i] > flight_bytes_;
      const bool is_held = at_ < step_.tensors[i].held_until;
      states_[i].away = states_[i].away || (leaves_[i] && is_released && !is_held);
    }
    return event.kind == StepEvent::Kind::kRead;
  }
  // Fetches like a stash after a read; returns the number of fetched tensors.
  std::size_t fetch(const StepPlan& plan) {
    std::size_t fetched = 0;
    next_ = std::max(next_, reads_);
    for (; next_ < plan.reads.size() && plan.reads[next_].fetch_after <= reads_; ++next_) {
      State& state = states_[plan.reads[next_].tensor];
      if (!state.away || state.is_in_pass || state.fetched || state.reads > plan.reads[next_].earlier) {
        continue;
      }
      const std::uint64_t bytes = step_.tensors[plan.reads[next_].tensor].bytes;
      if (ahead() > 0 && ahead() + bytes > plan.ahead_bytes) {
        break;
      }
      state.fetched = true;
      ++fetched;
    }
    return fetched;
  }

 private:
  struct State {
    bool saved = false;
    bool away = false;        // its source has been released; a target may be on the device
    bool fetched = false;     // fetched ahead and not yet read
    bool is_in_pass = false;  // read, with another read in the same pass to come
    std::size_t reads = 0;
    std::size_t held_by_reader_to = 0;  // the event after the last read
  };

  bool takes_nothing(std::size_t tensor) const {
    const State& state = states_[tensor];
    if (!state.away || state.is_in_pass || state.fetched) {
      return false;
    }
    // After its last read a tensor counts as on the device.
    return state.reads == 0 ? at_ < step_.tensors[tensor].dropped_after
                            : at_ > state.held_by_reader_to && is_read_again(tensor);
  }
  bool is_read_again(std::size_t tensor) const {
    return std::any_of(step_.events.begin() + static_cast<std::ptrdiff_t>(at_), step_.events.end(),
                       [tensor](const StepEvent& event) {
                         return event.kind == StepEvent::Kind::kRead && event.tensor == tensor;
                       });
  }

  bool is_next_read(std::size_t tensor) const {
    return step_.events[at_].kind == StepEvent::Kind::kRead && step_.events[at_].tensor == tensor;
  }
  std::uint64_t ahead() const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      bytes += states_[i].fetched ? step_.tensors[i].bytes : 0;
    }
    return bytes;
  }

  const StepRecord& step_;
  const std::vector<bool>& leaves_;
  const std::uint64_t flight_bytes_;
  std::vector<State> states_;
  std::vector<std::uint64_t> saved_since_;
  std::size_t at_ = 0;
  std::size_t reads_ = 0;
  std::size_t next_ = 0;  // in plan.reads
};

// For each event, true if any tensor would be away, supposing that all tensors that may leave did so at once.
std::vector<bool> events_that_count(const StepRecord& step) {
  std::vector<bool> all(step.tensors.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = !step.tensors[i].stays;
  }
  Run run(step, all, 0);
  std::vector<bool> counts;
  for (const StepEvent& event : step.events) {
    counts.push_back(run.in_use() < event.in_use_bytes);
    run.pass();
  }
  return counts;
}

// The model in step_plan.h: the most bytes in use, reserve included, if these tensors are away.
std::uint64_t peak_with(const StepRecord& step, const StepLimits& limits, const std::vector<bool>& leaves) {
  const std::vector<bool> counts = events_that_count(step);
  Run run(step, leaves, limits.flight_bytes);
  std::uint64_t peak = 0;
  for (std::size_t at = 0; at < step.events.size(); ++at) {
    const bool has_reserve = run.reads() > 0 || step.events[at].kind == StepEvent::Kind::kRead;
    const std::uint64_t in_use = run.in_use() + (has_reserve ? limits.ahead_bytes : 0);
    peak = counts[at] ? std::max(peak, in_use) : peak;
    run.pass();
  }
  return peak;
}

struct PlannedRun {
  std::uint64_t peak_bytes = 0;
  std::uint64_t peak_that_counts = 0;
  std::size_t fetched_ahead = 0;
};

// Replays a step according to the plan, fetches included.
PlannedRun run_by(const StepPlan& plan, const StepRecord& step) {
  const std::vector<bool> counts = events_that_count(step);
  Run run(step, plan.leaves, plan.flight_bytes);
  PlannedRun result;
  for (std::size_t at = 0; at < step.events.size(); ++at) {
    result.peak_bytes = std::max(result.peak_bytes, run.in_use());
    result.peak_that_counts = std::max(result.peak_that_counts, counts[at] ? run.in_use() : 0);
    result.fetched_ahead += run.pass() ? run.fetch(plan) : 0;
  }
  return result;
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

// The fewest leaving bytes of all sets that meet the budget; empty if none does.
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

// The sequence of narrowing windows. The first is at most as wide as all tensors; each next one is half as
// wide. The smallest is an eighth of the two largest tensors, or of the window if that is less. The last
// limits have no windows.
std::vector<StepLimits> narrowing_windows(const StepRecord& step, const StepLimits& widest) {
  std::vector<std::uint64_t> sizes;
  for (const StepTensor& tensor : step.tensors) {
    sizes.push_back(tensor.bytes);
  }
  std::ranges::sort(sizes, std::greater());
  const std::uint64_t all = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  const std::uint64_t two_largest = sizes[0] + (sizes.size() > 1 ? sizes[1] : 0);
  const std::uint64_t ahead = std::min(widest.ahead_bytes, all);
  const std::uint64_t flight = std::min(widest.flight_bytes, all);
  const auto part = [two_largest](std::uint64_t window, int halvings) {
    return std::max(window >> halvings, std::min(window, two_largest) / 8);
  };
  constexpr int kHalvings = 16;
  std::vector<StepLimits> limits;
  limits.reserve(kHalvings + 1);
  for (int halvings = 0; halvings < kHalvings; ++halvings) {
    limits.push_back({.budget_bytes = widest.budget_bytes,
                      .ahead_bytes = part(ahead, halvings),
                      .flight_bytes = part(flight, halvings)});
  }
  limits.push_back({.budget_bytes = widest.budget_bytes});
  return limits;
}

// The widest windows with which some set meets the budget, and its fewest leaving bytes; empty if no set
// does.
std::optional<std::pair<StepLimits, std::uint64_t>> best_by_all_sets(const StepRecord& step,
                                                                     const StepLimits& widest) {
  const StepLimits* last = nullptr;
  const std::vector<StepLimits> narrowing = narrowing_windows(step, widest);
  for (const StepLimits& limits : narrowing) {
    if (last != nullptr && last->ahead_bytes == limits.ahead_bytes &&
        last->flight_bytes == limits.flight_bytes) {
      continue;
    }
    last = &limits;
    if (const std::optional<std::uint64_t> fewest = fewest_bytes(step, limits)) {
      return std::pair(limits, *fewest);
    }
  }
  return std::nullopt;
}

TEST(StepPlan, IsAsCheapAsTheCheapestOfAllSets) {
  std::uint64_t planned = 0;
  std::uint64_t narrowed = 0;
  std::uint64_t impossible = 0;
  const std::uint64_t seeds = testing::extent({.usual = 1500, .under_sanitizers = 200, .in_long_run = 20000});
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StepRecord step =
        random_step(random, 2 + random() % 8, {.most = random() % 60}, random() % 4 == 0 ? 2 : 1);
    const StepLimits widest{.budget_bytes = 1 + random() % 200,
                            .ahead_bytes = random() % 8 == 0 ? 2000 : random() % 4 * 10,
                            .flight_bytes = random() % 8 == 0 ? 1000 : random() % 4 * 15};
    const StepPlan plan = plan_step(step, widest);
    ASSERT_TRUE(is_allowed(step, plan.leaves));
    ASSERT_EQ(plan.leaving_bytes, bytes_of_chosen(step, plan.leaves));
    const PlannedRun planned_run = run_by(plan, step);
    ASSERT_EQ(plan.peak_bytes, planned_run.peak_bytes);
    if (const auto best = best_by_all_sets(step, widest)) {
      ASSERT_EQ(plan.leaving_bytes, best->second);
      if (best->second > 0) {
        ASSERT_EQ(plan.ahead_bytes, best->first.ahead_bytes);
        ASSERT_EQ(plan.flight_bytes, best->first.flight_bytes);
      }
      ASSERT_LE(planned_run.peak_that_counts, widest.budget_bytes);
      planned += best->second > 0 ? 1U : 0U;
      narrowed += plan.flight_bytes < widest.flight_bytes ? 1U : 0U;
    } else {
      ASSERT_GT(plan.peak_bytes, widest.budget_bytes);
      ++impossible;
    }
  }
  EXPECT_GT(planned, seeds / 10) << "too few steps need a plan";
  EXPECT_GT(narrowed, seeds / 100) << "the widest windows are nearly always enough";
  EXPECT_GT(impossible, seeds / 10);
}

// If no set meets the budget, the plan is such that no further tensor would lower the peak.
TEST(StepPlan, DoesAllThatCanBeDoneWhereTheBudgetCannotBeKept) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StepRecord step = random_step(random, 2 + random() % 8, {.most = 20}, random() % 4 == 0 ? 2 : 1);
    std::vector<bool> all(step.tensors.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = !step.tensors[i].stays;
    }
    const StepPlan plan =
        plan_step(step, {.budget_bytes = 1, .ahead_bytes = 10, .flight_bytes = random() % 40});
    EXPECT_EQ(run_by(plan, step).peak_that_counts, peak_with(step, {}, all));
  }
}

// With as many tensors as a deep network saves, the search is cut off. The plan still meets the budget, with
// few more leaving bytes than the lower bound. With two passes the bound is less tight, since at each event
// some tensors are back.
TEST(StepPlan, LargeStepsKeepTheBudgetNearTheLowerBound) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::size_t passes = 1 + seed % 2;
    StepRecord step = random_step(random, 400, {.most = 100}, passes);
    const StepLimits nothing_leaves{.budget_bytes = 1, .ahead_bytes = 80, .flight_bytes = 80};
    const std::uint64_t peak = peak_with(step, nothing_leaves, std::vector<bool>(step.tensors.size()));
    const StepLimits limits{.budget_bytes = peak / 2, .ahead_bytes = 80, .flight_bytes = 80};
    const StepPlan plan = plan_step(step, limits);
    EXPECT_EQ(plan.ahead_bytes, limits.ahead_bytes);
    EXPECT_LE(peak_with(step, limits, plan.leaves), limits.budget_bytes);
    EXPECT_LE(plan.leaving_bytes, (peak - limits.budget_bytes) * (passes == 1 ? 105 : 120) / 100);
  }
}

// Nested tensors of one size, like those that a chain of layers saves.
StepRecord chain(std::uint32_t count, std::uint64_t bytes) {
  StepRecord step;
  std::uint64_t in_use = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    step.tensors.push_back({.bytes = bytes, .signature = i});
    in_use += bytes;
    step.events.push_back({.kind = StepEvent::Kind::kSave, .tensor = i, .in_use_bytes = in_use});
  }
  for (std::uint32_t i = count; i-- > 0;) {
    step.events.push_back({.kind = StepEvent::Kind::kRead, .tensor = i, .in_use_bytes = in_use});
    in_use -= bytes;
    step.tensors[i].dropped_after = step.events.size();
  }
  return step;
}

// Windows wider than the whole step are narrowed, not dropped.
TEST(StepPlan, AWindowThatIsWiderThanTheStepIsNarrowedUntilTheBudgetIsKept) {
  const StepRecord step = chain(40, 64);
  for (const std::uint64_t window : {std::uint64_t{1} << 14, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const StepPlan plan = plan_step(
        step, {.budget_bytes = std::uint64_t{20} * 64, .ahead_bytes = window, .flight_bytes = window});
    EXPECT_EQ(plan.ahead_bytes, 10U * 64) << "a quarter of all tensors; half is too wide";
    EXPECT_EQ(plan.flight_bytes, 10U * 64);
    EXPECT_LE(plan.peak_bytes, 20U * 64);
    EXPECT_GT(run_by(plan, step).fetched_ahead, 20U);
    const StepPlan without_budget = plan_step(step, {.ahead_bytes = window, .flight_bytes = window});
    EXPECT_GT(without_budget.leaving_bytes, 30U * 64);
  }
  // With many tensors even an eighth of all is too wide.
  const StepPlan plan =
      plan_step(chain(1000, 64),
                {.budget_bytes = std::uint64_t{20} * 64, .ahead_bytes = 1U << 20, .flight_bytes = 1U << 20});
  EXPECT_GT(plan.ahead_bytes, 2U * 64);
  EXPECT_LE(plan.peak_bytes, 20U * 64);
}

TEST(StepPlan, AnyNumberIsABudgetAndAWindow) {
  const StepRecord step = chain(12, 64);
  for (const int bit : {61, 62, 63}) {
    for (const std::uint64_t budget : {std::uint64_t{1} << bit, (std::uint64_t{1} << bit) - 1}) {
      for (const std::uint64_t window : {std::uint64_t{0}, std::uint64_t{128}, ~std::uint64_t{0}}) {
        const StepPlan plan =
            plan_step(step, {.budget_bytes = budget, .ahead_bytes = window, .flight_bytes = window});
        EXPECT_EQ(plan.leaving_bytes, 0U) << budget << ", " << window;
        EXPECT_EQ(plan.peak_bytes, 12U * 64);
      }
    }
  }
}

// Counts work instead of time. The work is about n log n, so twice the tensors may need a little more than
// twice the work.
TEST(StepPlan, CostsLittleMoreThanTwiceAsMuchForTwiceTheTensors) {
  for (const auto& [percent, passes] : {std::pair(90, 1), {50, 1}, {20, 1}, {90, 2}, {50, 2}}) {
    SCOPED_TRACE(percent);
    SCOPED_TRACE(passes);
    std::vector<std::uint64_t> visits;
    for (const std::size_t count : {4000, 8000, 16000}) {
      std::mt19937_64 random(1);
      const StepRecord step = random_step(random, count, {}, static_cast<std::size_t>(passes));
      std::uint64_t peak = 0;
      for (const StepEvent& event : step.events) {
        peak = std::max(peak, event.in_use_bytes);
      }
      const StepLimits limits{.budget_bytes = peak * static_cast<std::uint64_t>(percent) / 100,
                              .ahead_bytes = 80,
                              .flight_bytes = 80};
      const StepPlan plan = plan_step(step, limits);
      EXPECT_LE(plan.leaving_bytes, peak);
      visits.push_back(plan.visits);
      EXPECT_LT(plan.visits, 2000 * count);
    }
    EXPECT_LT(visits[1], visits[0] * 5 / 2);
    EXPECT_LT(visits[2], visits[1] * 5 / 2);
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
  EXPECT_TRUE(is_empty(plan_step(step, {.budget_bytes = peak, .ahead_bytes = 1000}).leaves));
  EXPECT_FALSE(is_empty(plan_step(step, {.budget_bytes = peak - 1}).leaves));
}

// The budget is exceeded only at an event at which no tensor can be away. Examples are memory in use before
// the step begins or in the optimizer.
TEST(StepPlan, WhatIsInUseWhereNothingCanBeAwayMovesNothing) {
  std::mt19937_64 random(1);
  StepRecord step = random_step(random, 30, {});
  std::uint64_t peak = 0;
  for (const StepEvent& event : step.events) {
    peak = std::max(peak, event.in_use_bytes);
  }
  step.events.front().in_use_bytes = 10 * peak;
  const StepPlan plan = plan_step(step, {.budget_bytes = peak, .ahead_bytes = 100});
  EXPECT_EQ(plan.leaving_bytes, 0U);
  EXPECT_EQ(plan.peak_bytes, 10 * peak);
}

TEST(StepPlan, WithoutABudgetAllLeavesThatCanBeReleasedBeforeItIsRead) {
  StepRecord step;
  for (std::uint32_t i = 0; i < 3; ++i) {
    step.tensors.push_back({.bytes = 10, .signature = i});
    step.events.push_back(
        {.kind = StepEvent::Kind::kSave, .tensor = i, .in_use_bytes = std::uint64_t{10} * (i + 1)});
  }
  for (std::uint32_t i = 3; i-- > 0;) {
    step.events.push_back(
        {.kind = StepEvent::Kind::kRead, .tensor = i, .in_use_bytes = std::uint64_t{10} * (i + 1)});
  }
  EXPECT_EQ(plan_step(step, {.flight_bytes = 10}).leaves, (std::vector<bool>{true, true, false}));
  // The save of the last tensor releases its source, but the next event already reads it.
  EXPECT_EQ(plan_step(step, {.flight_bytes = 0}).leaves, (std::vector<bool>{true, true, false}));
  step.tensors[0].stays = true;
  EXPECT_EQ(plan_step(step, {.flight_bytes = 10}).leaves, (std::vector<bool>{false, true, false}));
}

// --- fetches -----------------------------------------------------------------------------------------------

// Four tensors of 10 bytes leave and are read in reverse order. `in_use` has the bytes in use at the four
// reads.
StepRecord nested_step(const std::vector<std::uint64_t>& in_use) {
  StepRecord step;
  for (std::uint32_t i = 0; i < 4; ++i) {
    step.tensors.push_back({.bytes = 10, .signature = i});
    step.events.push_back(
        {.kind = StepEvent::Kind::kSave, .tensor = i, .in_use_bytes = std::uint64_t{10} * (i + 1)});
  }
  // This tensor is saved last, so that the other four are released before they are read.
  step.tensors.push_back({.bytes = 1, .signature = 4, .stays = true});
  step.events.push_back({.kind = StepEvent::Kind::kSave, .tensor = 4, .in_use_bytes = 41});
  step.events.push_back({.kind = StepEvent::Kind::kRead, .tensor = 4, .in_use_bytes = 41});
  for (std::uint32_t i = 4; i-- > 0;) {
    step.events.push_back({.kind = StepEvent::Kind::kRead, .tensor = i, .in_use_bytes = in_use[3 - i]});
  }
  return step;
}

std::vector<std::size_t> fetch_times(const StepRecord& step, std::uint64_t ahead_bytes,
                                     std::uint64_t budget_bytes) {
  std::vector<std::size_t> times;
  for (const ScheduledRead& read :
       schedule_fetches(step, absences_of(step, 0), ahead_bytes, budget_bytes).reads) {
    times.push_back(read.fetch_after);
  }
  return times;
}

TEST(FetchSchedule, GoesAsFarAheadAsTheWindow) {
  const StepRecord step = nested_step({41, 31, 21, 11});
  // The first read, of the tensor that stays, fetches two tensors; each further read fetches one more.
  EXPECT_EQ(fetch_times(step, 20, 0), (std::vector<std::size_t>{0, 1, 1, 2, 3}));
  EXPECT_EQ(fetch_times(step, 100, 0), (std::vector<std::size_t>{0, 1, 1, 1, 1}));
  // A single tensor may exceed the window.
  EXPECT_EQ(fetch_times(step, 5, 0), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(FetchSchedule, WaitsUntilTheBudgetHasRoom) {
  const StepRecord step = nested_step({41, 31, 21, 11});
  // Without fetches, 11 bytes are in use at the second read and 1 byte at each later read.
  EXPECT_EQ(fetch_times(step, 100, 21), (std::vector<std::size_t>{0, 1, 1, 2, 3}));
  EXPECT_EQ(fetch_times(step, 100, 11), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  // The program itself uses more memory up to the fourth read, so that a tensor read later is not fetched by
  // then.
  const StepRecord busy = nested_step({41, 31, 51, 11});
  EXPECT_EQ(fetch_times(busy, 100, 41), (std::vector<std::size_t>{0, 1, 1, 1, 4}));
}

// Plans of random steps fetch many tensors ahead, without a higher peak than planned.
TEST(FetchSchedule, FetchesAheadWithinTheBudget) {
  std::size_t ahead = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StepRecord step = random_step(random, 30, {.most = 60});
    const StepPlan plan = plan_step(step, {.budget_bytes = 350, .ahead_bytes = 80, .flight_bytes = 40});
    const PlannedRun run = run_by(plan, step);
    EXPECT_EQ(run.peak_bytes, plan.peak_bytes);
    ahead += run.fetched_ahead;
  }
  EXPECT_GT(ahead, 1000U);
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
  save(10, 5);  // after the drop of the previous tensor
  save(20, 5);
  save(30, 5);
  const std::vector<bool> leaves{true, true, true, true, false};
  EXPECT_EQ(host_blocks_of(step, leaves, 40), (HostBlockCounts{{10, 2}, {20, 1}}));
  EXPECT_EQ(host_blocks_of(step, leaves, 39), (HostBlockCounts{{10, 2}}))
      << "the block is for the tensors saved first";
  EXPECT_EQ(host_blocks_of(step, leaves, 19), (HostBlockCounts{{10, 1}}));
}

TEST(HostBlockSizes, AreSixteenFromEachPowerOfTwoToTheNext) {
  std::uint64_t last = 0;
  std::size_t sizes = 0;
  for (std::uint64_t bytes = 1; bytes <= 4096; ++bytes) {
    const std::uint64_t size = host_block_bytes(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_LE(size - bytes, bytes / 16);
    ASSERT_EQ(host_block_bytes(size), size);
    sizes += bytes > 2048 && size != last ? 1U : 0U;
    last = size;
  }
  EXPECT_EQ(sizes, 16U);
}

}  // namespace
}  // namespace vdnn::stash::step_plan_test
