// The last changes to the fastest plan (src/plan/optimal/finish.h), on random small tapes. About a quarter of
// their ops have a fast algorithm with a workspace and a lean one without.

#include "src/plan/optimal/finish.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/plan/optimal/arrangement.h"
#include "tests/exec/small_tapes.h"
#include "vdnn/checker.h"
#include "vdnn/predictor.h"

namespace vdnn {
namespace {

using testing::small_tape;
using testing::SmallTape;

constexpr std::uint64_t kTapes = 50;
constexpr std::uint64_t kAmple = std::uint64_t{1} << 40U;
constexpr std::uint64_t kShift = std::uint64_t{64} << 20U;

// A plan that keeps every value, with addresses. By default, it uses the lean algorithms.
struct Keeping {
  explicit Keeping(std::uint64_t seed, AlgorithmPreference preference = AlgorithmPreference::kMemory)
      : small(small_tape(seed)) {
    planned.plan = make_plan(tape(), {.policy = Policy::kOffloadNone, .preference = preference});
    arrange(problem.most_bytes());
  }

  void arrange(std::uint64_t goal) {
    planned.schedule =
        optimal::arrange(problem, planned.plan, static_cast<OpId>(problem.slots()), goal, {}, placements);
  }

  const Tape& tape() const { return *small.tape; }
  Forecast forecast(const PlannedSchedule& other) const {
    return forecaster->forecast(tape(), other.schedule);
  }

  // The best plan if this one is entered and then finished.
  std::optional<PlannedSchedule> finished(const Budgets& budgets) {
    optimal::Contest contest(tape(), budgets, *forecaster);
    contest.begin_round(0);
    contest.enter(planned);
    optimal::finish(problem, contest, placements);
    return contest.best();
  }

  SmallTape small;
  PredictionOptions prediction{.profile = small.profile};
  std::unique_ptr<Forecaster> forecaster = make_forecaster(prediction);
  PlanCosts costs = plan_costs(*small.tape, prediction);
  optimal::Problem problem{*small.tape, {}, costs};
  Placements placements;
  PlannedSchedule planned;
};

TEST(Finish, OpsGetTheirFastestAlgorithmsIfThereIsMemory) {
  std::size_t replaced = 0;
  for (std::uint64_t seed = 1; seed <= kTapes; ++seed) {
    SCOPED_TRACE(seed);
    Keeping lean(seed);
    const auto best = lean.finished({.device_bytes = kAmple, .host_bytes = kAmple});
    ASSERT_TRUE(best);
    EXPECT_TRUE(check_schedule(lean.tape(), best->schedule).empty());
    for (OpId op = 0; op < lean.problem.slots(); ++op) {
      EXPECT_EQ(best->plan.algorithms[op], lean.problem.choices(op).front().algorithm);
      replaced += best->plan.algorithms[op] == lean.planned.plan.algorithms[op] ? 0 : 1;
    }
    EXPECT_EQ(best->schedule.algorithms, best->plan.algorithms);
  }
  EXPECT_GT(replaced, 0U);
}

// The budget is that of the lean algorithms. Some ops find a place for a workspace, and others do not.
TEST(Finish, OnlyOpsWithAPlaceForTheWorkspaceChange) {
  std::size_t replaced = 0;
  std::size_t lean_ops = 0;
  for (std::uint64_t seed = 1; seed <= kTapes; ++seed) {
    SCOPED_TRACE(seed);
    Keeping lean(seed);
    const Forecast before = lean.forecast(lean.planned);
    const Budgets budgets{.device_bytes = before.peak_bytes, .host_bytes = kAmple};
    const auto best = lean.finished(budgets);
    ASSERT_TRUE(best);
    EXPECT_TRUE(check_schedule(lean.tape(), best->schedule).empty());
    const Forecast after = lean.forecast(*best);
    EXPECT_TRUE(after.fits(budgets));
    EXPECT_LE(after.step_seconds, before.step_seconds);
    for (OpId op = 0; op < lean.problem.slots(); ++op) {
      replaced += best->plan.algorithms[op] == lean.planned.plan.algorithms[op] ? 0 : 1;
      lean_ops += best->plan.algorithms[op] == lean.problem.choices(op).front().algorithm ? 0 : 1;
    }
  }
  EXPECT_GT(replaced, 0U);
  EXPECT_GT(lean_ops, 0U);
}

// Of each plan, addresses are known that are closer and make the step no longer.
TEST(Finish, BuffersMoveCloser) {
  for (std::uint64_t seed = 1; seed <= kTapes; ++seed) {
    SCOPED_TRACE(seed);
    Keeping fast(seed, AlgorithmPreference::kPerformance);
    Schedule& schedule = fast.planned.schedule;
    fast.arrange(optimal::close_bytes(lifetimes(schedule), fast.costs.alignment_bytes));
    for (Buffer& buffer : schedule.buffers) {
      if (buffer.offset) {
        *buffer.offset += kShift;
      }
    }
    schedule.arena_bytes += kShift;
    const auto best = fast.finished({.device_bytes = kAmple, .host_bytes = kAmple});
    ASSERT_TRUE(best);
    EXPECT_TRUE(check_schedule(fast.tape(), best->schedule).empty());
    EXPECT_LT(best->schedule.arena_bytes, kShift);
  }
}

TEST(Finish, APlanWithoutAddressesAndAPlanThatDoesNotFitDoNotChange) {
  Keeping lean(1);
  EXPECT_FALSE(lean.finished({.device_bytes = 1, .host_bytes = kAmple}));
  lean.planned.schedule = make_schedule(lean.tape(), lean.planned.plan);
  const auto best = lean.finished({.device_bytes = kAmple, .host_bytes = kAmple});
  ASSERT_TRUE(best);
  EXPECT_EQ(best->plan.algorithms, lean.planned.plan.algorithms);
  EXPECT_EQ(best->schedule.arena_bytes, 0U);
}

// Two ways to find out whether a workspace has a place must agree.
TEST(LargestPlaces, AreThoseInWhichWorkspacesHaveAPlace) {
  std::size_t with_place = 0;
  std::size_t without_place = 0;
  for (std::uint64_t seed = 1; seed <= kTapes; ++seed) {
    Keeping lean(seed);
    const std::uint64_t most = lean.planned.schedule.arena_bytes;
    const std::vector<std::uint64_t> places =
        optimal::largest_places(lean.planned.schedule, lean.costs.alignment_bytes, most);
    for (OpId op = 0; op < lean.problem.slots(); ++op) {
      const optimal::Choice& fastest = lean.problem.choices(op).front();
      if (fastest.algorithm == lean.planned.plan.algorithms[op]) {
        continue;
      }
      Plan other = lean.planned.plan;
      other.algorithms[op] = fastest.algorithm;
      const bool has_place =
          optimal::ops_without_place(lean.problem, other, lean.planned.schedule, most).empty();
      EXPECT_EQ(fastest.workspace_bytes <= places[op], has_place) << "tape " << seed << ", op " << op;
      (has_place ? with_place : without_place) += 1;
    }
  }
  EXPECT_GT(with_place, 0U);
  EXPECT_GT(without_place, 0U);
}

}  // namespace
}  // namespace vdnn
