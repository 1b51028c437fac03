// The policy `optimal`, judged by the predictor. Compares it with an exhaustive search on small tapes.

#include "vdnn/optimal_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "src/plan/residency.h"
#include "tests/exec/small_tapes.h"
#include "tests/extent.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"
#include "vdnn/predictor.h"

namespace vdnn {
namespace {

using testing::small_tape;
using testing::SmallTape;

const std::size_t kMostForecasts = testing::extent({.usual = 3000, .in_long_run = 20000});
// There are more plans than forecasts: for most plans, lower bounds of time and memory already show that they
// are no better than the best known plan.
const std::size_t kMostPlans = 20 * kMostForecasts;
constexpr double kNever = std::numeric_limits<double>::infinity();

// --- all decisions -----------------------------------------------------------------------------------------
// Tries all decisions. Each gap between two uses of a value is kept, recomputed or offloaded. Each op has an
// algorithm, and each prefetch an op before which it starts. The memory of an offloaded value is released
// after some op. Addresses are planned or found by the pool. The predictor scores each plan. A value is
// recomputed right before its next use, or where another recomputation may need it. An offloaded value is
// copied once per step, as soon as it is made or recomputed.
//
// Prunes by branch and bound. A step takes at least as long as each of the following: its ops with all
// recomputations; its copies to the host; its loads and copies from the host. At each op, the step needs at
// least the memory of the values that the decisions so far keep there.
class Exhaustive {
 public:
  Exhaustive(const SmallTape& small, const Budgets& budgets, const Forecaster& forecaster)
      : small_(small),
        tape_(*small.tape),
        budgets_(budgets),
        forecaster_(forecaster),
        present_(tape_.ops().size(), 0) {
    for (ValueId id = 0; id < tape_.values().size(); ++id) {
      find_gaps(id);
    }
    for (const ValueId input : tape_.inputs()) {
      fetched_bytes_ += tape_.value(input).bytes;
    }
  }

  // Ignores plans whose step takes `known` seconds or more. Returns false if there are too many plans to try.
  bool find_better_than(double known) {
    best_ = known;
    Plan plan = make_plan(tape_, {.policy = Policy::kOffloadNone});
    choose_algorithm(plan, 0, 0);
    return !is_enough();
  }
  double best() const { return best_; }

 private:
  struct Gap {
    ValueId value = kNone;
    OpId before = 0;  // the earlier use
    OpId after = 0;
    OpId born = 0;  // where the value's first life begins
    bool first = false;
  };
  // The state of a value after the gaps decided so far.
  struct Life {
    OpId born = 0;
    bool copied = false;
  };

  void hold(ValueId value, OpId first, OpId last) {
    for (OpId op = first; op <= last; ++op) {
      present_[op] += tape_.value(value).bytes;
    }
  }
  void unhold(ValueId value, OpId first, OpId last) {
    for (OpId op = first; op <= last; ++op) {
      present_[op] -= tape_.value(value).bytes;
    }
  }

  // A value with gaps is present at its uses; any other value from its first to its last use.
  void find_gaps(ValueId id) {
    const Value& value = tape_.value(id);
    const OpId last = tape_.last_use(id);
    if (value.persistent()) {
      persistent_bytes_ += value.bytes;
      return;
    }
    const OpId producer = tape_.producer(id);
    OpId before = producer == kNone ? tape_.readers(id).front() : producer;
    hold(id, producer == kNone ? 0 : before, before);
    if (value.kind != ValueKind::kFeatureMap && value.kind != ValueKind::kInput) {
      if (before < last) {
        hold(id, before + 1, last);
      }
      return;
    }
    bool first = true;
    for (const OpId after : tape_.readers(id)) {
      if (after > before) {
        hold(id, after, after);
      }
      if (after >= before + 2) {
        gaps_.push_back({.value = id,
                         .before = before,
                         .after = after,
                         .born = producer == kNone ? tape_.readers(id).front() : producer,
                         .first = first});
        first = false;
      }
      before = after;
    }
  }

  bool is_enough() const { return forecasts_ >= kMostForecasts || plans_ >= kMostPlans; }

  bool fits() const {
    return std::ranges::all_of(
        present_, [&](std::uint64_t bytes) { return bytes + persistent_bytes_ <= budgets_.device_bytes; });
  }

  void choose_algorithm(Plan& plan, OpId op, double seconds) {
    if (op == tape_.ops().size()) {
      choose_fate(plan, 0, seconds, {});
      return;
    }
    for (std::uint32_t index = 0; index < tape_.op(op).algorithms.size(); ++index) {
      plan.algorithms[op] = index;
      const std::uint64_t workspace = tape_.op(op).algorithms[index].workspace_bytes;
      present_[op] += workspace;
      choose_algorithm(plan, op + 1, seconds + tape_.op(op).cost_with(index).seconds);
      present_[op] -= workspace;
    }
  }

  void choose_fate(Plan& plan, std::size_t gap, double seconds, Life life) {
    if (std::max(seconds, copy_seconds()) >= best_ || is_enough() || !fits()) {
      return;
    }
    if (gap == gaps_.size()) {
      score(plan);
      return;
    }
    const Gap& mine = gaps_[gap];
    if (mine.first) {
      life = {.born = mine.born};
    }
    hold(mine.value, mine.before + 1, mine.after - 1);
    choose_fate(plan, gap + 1, seconds, life);
    unhold(mine.value, mine.before + 1, mine.after - 1);
    make_again(plan, gap, seconds, life);
    send_away(plan, gap, seconds, life);
  }

  void make_again(Plan& plan, std::size_t gap, double seconds, Life life) {
    const Gap& mine = gaps_[gap];
    const OpId producer = tape_.producer(mine.value);
    if (producer == kNone) {
      return;
    }
    const double more = tape_.op(producer).cost_with(plan.algorithms[producer]).seconds;
    for (OpId with = mine.before + 1; with <= mine.after; ++with) {
      if (with < mine.after && !may_be_made_for(with)) {
        continue;
      }
      if (with < mine.after) {
        hold(mine.value, with, mine.after - 1);
      }
      plan.recomputations.push_back({.value = mine.value, .with = with});
      choose_fate(plan, gap + 1, seconds + more, {.born = with, .copied = life.copied});
      plan.recomputations.pop_back();
      if (with < mine.after) {
        unhold(mine.value, with, mine.after - 1);
      }
    }
  }

  // Whether a gap ends at `op`, so that recomputations there may need other values.
  bool may_be_made_for(OpId op) const {
    return std::ranges::any_of(gaps_, [op](const Gap& gap) { return gap.after == op; });
  }

  void send_away(Plan& plan, std::size_t gap, double seconds, Life life) {
    const Gap& mine = gaps_[gap];
    const std::uint64_t bytes = tape_.value(mine.value).bytes;
    const std::uint64_t copied = life.copied ? 0 : bytes;
    copied_bytes_ += copied;
    fetched_bytes_ += bytes;
    for (OpId release = mine.before; release + 1 < mine.after; ++release) {
      for (OpId prefetch = release + 1; prefetch <= mine.after; ++prefetch) {
        hold(mine.value, mine.before + 1, release);
        hold(mine.value, prefetch, mine.after - 1);
        plan.transfers.push_back({.value = mine.value,
                                  .offload_with = life.copied ? kNone : life.born,
                                  .release_with = release,
                                  .prefetch_with = prefetch});
        choose_fate(plan, gap + 1, seconds, {.born = prefetch, .copied = true});
        plan.transfers.pop_back();
        unhold(mine.value, prefetch, mine.after - 1);
        unhold(mine.value, mine.before + 1, release);
      }
    }
    fetched_bytes_ -= bytes;
    copied_bytes_ -= copied;
  }

  double copy_seconds() const {
    const auto& link = small_.profile.link_bytes_per_second;
    return std::max(static_cast<double>(copied_bytes_) / link.device_to_host,
                    static_cast<double>(fetched_bytes_) / link.host_to_device);
  }

  // Recomputing a value earlier than right before its next use helps only if another recomputation needs the
  // value earlier. Otherwise, later is better.
  bool comes_early_for_nothing(const Plan& plan) const {
    return std::ranges::any_of(plan.recomputations, [&](const Recomputation& early) {
      const auto readers = tape_.readers(early.value);
      return std::ranges::find(readers, early.with) == readers.end() &&
             std::ranges::count(plan.recomputations, early.with, &Recomputation::with) < 2;
    });
  }

  // Compares lower bounds on the schedule's time and memory: the ops that it launches, and the values that it
  // keeps.
  bool may_be_better(const Schedule& schedule) const {
    double seconds = 0;
    for (const Instruction& instruction : schedule.instructions) {
      seconds += is_launch(instruction.kind)
                     ? tape_.op(instruction.op).cost_with(schedule.algorithms[instruction.op]).seconds
                     : 0;
    }
    return seconds < best_ && most_bytes_in_use(schedule) <= budgets_.device_bytes;
  }

  void score(Plan& plan) {
    ++plans_;
    if (comes_early_for_nothing(plan)) {
      return;
    }
    for (const std::uint64_t alignment : {std::uint64_t{0}, small_.profile.alignment_bytes}) {
      plan.placement_alignment = alignment;
      try {
        const Schedule schedule = make_schedule(tape_, plan);
        if (!may_be_better(schedule)) {
          return;
        }
        const Forecast forecast = forecaster_.forecast(tape_, schedule);
        ++forecasts_;
        if (forecast.fits(budgets_)) {
          best_ = std::min(best_, forecast.step_seconds);
        }
      } catch (const InvalidArgument&) {  // a recomputation needs a value that is not back yet
        return;
      }
    }
  }

  const SmallTape& small_;
  const Tape& tape_;
  Budgets budgets_;
  const Forecaster& forecaster_;
  std::vector<Gap> gaps_;               // by value, in order of their uses
  std::vector<std::uint64_t> present_;  // for each op: least bytes that the decisions keep on the device
  std::uint64_t persistent_bytes_ = 0;
  std::uint64_t copied_bytes_ = 0;   // to the host
  std::uint64_t fetched_bytes_ = 0;  // from the host, with the step's inputs
  double best_ = kNever;
  std::size_t forecasts_ = 0;
  std::size_t plans_ = 0;
};

struct Judged {
  double optimal = kNever;
  double best = kNever;
};

// Judges a random tape in a random budget. Returns nothing if there are too many plans, or if no plan fits.
std::optional<Judged> judge(std::uint64_t seed) {
  const SmallTape small = small_tape(seed);
  const PredictionOptions prediction{.profile = small.profile};
  const auto forecaster = make_forecaster(prediction);
  const Schedule everything = make_schedule(*small.tape, make_plan(*small.tape, {}));
  const std::uint64_t most = forecaster->forecast(*small.tape, everything).peak_bytes;
  const double share = 0.35 + 0.65 * static_cast<double>(seed * 7919 % 101) / 100;
  const Budgets budgets{.device_bytes = static_cast<std::uint64_t>(share * static_cast<double>(most)),
                        .host_bytes = std::uint64_t{1} << 40U};
  const PlannedSchedule planned =
      plan_optimal(*small.tape, {}, budgets, plan_costs(*small.tape, prediction), *forecaster);
  EXPECT_TRUE(check_schedule(*small.tape, planned.schedule).empty()) << "tape " << seed;
  const Forecast forecast = forecaster->forecast(*small.tape, planned.schedule);
  Judged judged{.optimal = forecast.fits(budgets) ? forecast.step_seconds : kNever};
  Exhaustive exhaustive(small, budgets, *forecaster);
  if (!exhaustive.find_better_than(judged.optimal)) {
    return std::nullopt;
  }
  judged.best = exhaustive.best();
  EXPECT_TRUE(judged.optimal < kNever || judged.best == kNever) << "tape " << seed << " fits in the budget";
  if (judged.best == kNever || judged.optimal == kNever) {
    return std::nullopt;
  }
  EXPECT_GE(judged.best,
            lower_bound_seconds(*small.tape, plan_costs(*small.tape, prediction), budgets.device_bytes) *
                (1 - 1e-9))
      << "tape " << seed;
  return judged;
}

void expect_near_the_best(std::uint64_t first_seed, std::size_t tapes) {
  double sum = 0;
  double worst = 1;
  std::size_t judged_tapes = 0;
  std::size_t drawn = 0;
  for (std::uint64_t seed = first_seed; judged_tapes < tapes; ++seed) {
    ++drawn;
    if (const std::optional<Judged> judged = judge(seed)) {
      const double ratio = judged->optimal / judged->best;
      EXPECT_LE(ratio, 1.02) << "tape " << seed;
      worst = std::max(worst, ratio);
      sum += ratio;
      ++judged_tapes;
    }
  }
  const double mean = sum / static_cast<double>(tapes);
  std::cout << tapes << " tapes of " << drawn << " drawn: mean " << mean << ", worst " << worst
            << " of the exhaustive best\n";
  EXPECT_LE(mean, 1.001);
}

TEST(OptimalPlan, IsNearTheExhaustiveBestOnSmallTapes) {
  expect_near_the_best(1, testing::extent({.usual = 20, .under_sanitizers = 4, .in_long_run = 200}));
}

// Regression: to find the cost of recomputing a value, the planner followed every path through the ops that
// lead to it. If each op reads four maps, there are so many paths that this never ended.
TEST(OptimalPlan, ManyWaysToOneValueAreWalkedOnce) {
  testing::TapeDraft draft;
  const ValueId images = draft.value("images", ValueKind::kInput, 4096);
  const ValueId targets = draft.value("targets", ValueKind::kTarget, 64);
  const ValueId w = draft.value("w", ValueKind::kParameter, 64);
  const std::uint32_t layer = draft.layer("all");
  std::vector<ValueId> maps{images};
  for (int each = 0; each < 60; ++each) {
    const std::vector<ValueId> reads(maps.end() - std::min<std::ptrdiff_t>(4, std::ssize(maps)), maps.end());
    maps.push_back(draft.value("y" + std::to_string(each), ValueKind::kFeatureMap, 4096));
    draft.op("forward" + std::to_string(each), layer, Phase::kForward, reads, {maps.back()});
  }
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 64);
  const ValueId gradient = draft.value("gradient", ValueKind::kParameterGradient, 64);
  draft.op("loss", layer, Phase::kForward, {maps.back(), targets}, {metrics});
  draft.op("other.backward", layer, Phase::kBackward, {targets},
           {draft.value("g", ValueKind::kGradientMap, 64)});
  draft.op("backward", layer, Phase::kBackward, {maps.back(), images}, {gradient});
  draft.op("update", layer, Phase::kUpdate, {w, gradient}, {w});
  const auto tape = draft.finish();
  const PredictionOptions prediction{.profile = sim_profile("titan-x")};
  const PlannedSchedule planned = plan_optimal(
      *tape, {}, {.device_bytes = std::uint64_t{1} << 30U, .host_bytes = std::uint64_t{1} << 30U},
      plan_costs(*tape, prediction), *make_forecaster(prediction));
  EXPECT_TRUE(check_schedule(*tape, planned.schedule).empty());
}

}  // namespace
}  // namespace vdnn
