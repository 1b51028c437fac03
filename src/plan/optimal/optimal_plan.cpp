#include "vdnn/optimal_plan.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/plan/optimal/arrangement.h"
#include "src/plan/optimal/search.h"
#include "src/plan/placement.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// The model's times are hardly ever above the forecaster's by more than this part; where forecasts are cheap,
// more of them are made.
constexpr double kModelError = 0.001;
constexpr double kModelErrorOfSmallTapes = 0.03;
constexpr std::size_t kSmallTape = 300;  // ops

// Of what is alive at the fullest moment, the most that a plan with more room may reserve.
constexpr double kMostReserved = 1.02;

class Chooser {
 public:
  Chooser(const Tape& tape, const PlanOptions& options, const Budgets& budgets, const PlanCosts& costs,
          const Forecaster& forecaster)
      : tape_(tape),
        options_(options),
        budgets_(budgets),
        costs_(costs),
        forecaster_(forecaster),
        problem_(tape, options, costs),
        layout_(problem_) {}

  PlannedSchedule choose() {
    // Everything kept, with the fastest algorithms: it shows what page-locked memory a step takes without
    // offloading, and there is a plan in any case.
    consider(optimal::Fates(problem_.gaps().size(), optimal::Fate::kKeep), problem_.most_bytes(),
             budgets_.device_bytes);
    const std::uint64_t host = budgets_.host_bytes - std::min(budgets_.host_bytes, last_.host_bytes);
    const std::vector<optimal::Found> found = optimal::Search(problem_, host).run();
    choose_among(found);
    consider_static_policies();
    find_smallest(found);
    PlannedSchedule chosen = best_ ? *std::move(best_) : *smallest_;
    chosen.smallest_peak_bytes = smallest_forecast_.peak_bytes;
    return chosen;
  }

 private:
  // By the model's time, as long as it may still be better than what the forecaster has said of others.
  void choose_among(std::vector<optimal::Found> found) {
    std::ranges::stable_sort(found, {}, &optimal::Found::seconds);
    const double error = problem_.slots() <= kSmallTape ? kModelErrorOfSmallTapes : kModelError;
    for (const optimal::Found& each : found) {
      if (best_ && each.seconds * (1 - error) >= best_seconds_) {
        return;
      }
      if (committed_bytes(each.bytes) <= budgets_.device_bytes) {
        consider(each.fates, each.bytes, budgets_.device_bytes);
      }
    }
  }

  // All sizes that may lead to less than what is known, so that it is the same whatever the budget.
  void find_smallest(const std::vector<optimal::Found>& found) {
    for (const optimal::Found& each : found) {
      if (committed_bytes(each.bytes) >= smallest_forecast_.peak_bytes) {
        return;
      }
      consider(each.fates, each.bytes, 0);
    }
  }

  std::uint64_t committed_bytes(std::uint64_t bytes) const {
    return round_up(problem_.persistent_bytes() + bytes, costs_.granule_bytes);
  }

  static std::uint64_t with_room(std::uint64_t bytes, const optimal::GiveWay& give_way) {
    return bytes + static_cast<std::uint64_t>(static_cast<double>(bytes) * give_way.room);
  }

  // More room is no excuse to place badly.
  bool has_holes(const Schedule& schedule) const {
    const std::uint64_t live = most_live_bytes(lifetimes(schedule), costs_.alignment_bytes);
    return static_cast<double>(schedule.arena_bytes) > kMostReserved * static_cast<double>(live);
  }

  // As the model has it; and where no addresses are found for that in `enough` bytes, with what has to give
  // way. Also whatever takes less than all that is known. Where ops are held up, less room may be the faster.
  void consider(const optimal::Fates& fates, std::uint64_t bytes, std::uint64_t enough) {
    if (!layout_.evaluate(fates, bytes).feasible()) {
      return;
    }
    std::uint64_t committed = 0;
    for (const optimal::GiveWay give_way : optimal::kWaysToGive) {
      // Results are smaller than a granule.
      if (give_way.results &&
          committed > std::max(enough, smallest_forecast_.peak_bytes) + costs_.granule_bytes) {
        continue;
      }
      PlannedSchedule candidate;
      candidate.plan.options = options_;
      layout_.write(candidate.plan);
      candidate.schedule = optimal::arrange(problem_, candidate.plan, with_room(bytes, give_way), give_way);
      if (give_way.room > 0 && has_holes(candidate.schedule)) {
        continue;
      }
      const bool may_give_way = !candidate.plan.transfers.empty();
      committed = committed_bytes(candidate.schedule.arena_bytes);
      if (committed <= enough || !smallest_ || committed < smallest_forecast_.peak_bytes) {
        forecast(std::move(candidate));
      }
      const bool held_up = give_way.copies == optimal::GiveWay::Copies::kAll;
      if ((committed <= enough && !held_up) || !may_give_way) {
        return;
      }
    }
  }

  // What other policies do.
  void consider_static_policies() {
    const Plan fast = static_plan(Policy::kOffloadNone, AlgorithmPreference::kPerformance);
    const Plan small = static_plan(Policy::kOffloadNone, AlgorithmPreference::kMemory);
    for (const Policy policy :
         {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
      if (fast.algorithms != small.algorithms) {
        consider(static_plan(policy, AlgorithmPreference::kPerformance), false);
      }
      consider(static_plan(policy, AlgorithmPreference::kMemory), policy == Policy::kOffloadAll);
    }
  }

  Plan static_plan(Policy policy, AlgorithmPreference preference) const {
    PlanOptions options = options_;
    options.policy = policy;
    options.preference = preference;
    Plan plan = make_plan(tape_, options);
    plan.options = options_;
    return plan;
  }

  // Unless it can only be slower than what is known, and does not take the least memory either.
  void consider(Plan plan, bool least_memory) {
    double seconds = 0;
    double link = 0;
    for (OpId op = 0; op < tape_.ops().size(); ++op) {
      seconds += costs_.op_seconds[op][plan.algorithms[op]];
    }
    for (const Transfer& transfer : plan.transfers) {
      link += static_cast<double>(tape_.value(transfer.value).bytes) / costs_.device_to_host;
    }
    if (least_memory || !best_ || std::max(seconds, link) < best_seconds_) {
      Schedule schedule = make_schedule(tape_, plan);
      forecast({.plan = std::move(plan), .schedule = std::move(schedule)});
    }
  }

  void forecast(PlannedSchedule candidate) {
    last_ = forecaster_.forecast(tape_, candidate.schedule);
    if (last_.fits(budgets_) && (!best_ || last_.step_seconds < best_seconds_)) {
      best_ = candidate;
      best_seconds_ = last_.step_seconds;
    }
    const auto rank = [&](const Forecast& forecast) {
      return std::pair(forecast.host_bytes > budgets_.host_bytes, forecast.peak_bytes);
    };
    if (!smallest_ || rank(last_) < rank(smallest_forecast_)) {
      smallest_ = std::move(candidate);
      smallest_forecast_ = last_;
    }
  }

  const Tape& tape_;
  const PlanOptions& options_;
  const Budgets& budgets_;
  const PlanCosts& costs_;
  const Forecaster& forecaster_;
  optimal::Problem problem_;
  optimal::Layout layout_;
  std::optional<PlannedSchedule> best_;
  double best_seconds_ = 0;
  std::optional<PlannedSchedule> smallest_;
  Forecast smallest_forecast_;
  Forecast last_;
};

}  // namespace

PlannedSchedule plan_optimal(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                             const PlanCosts& costs, const Forecaster& forecaster) {
  return Chooser(tape, options, budgets, costs, forecaster).choose();
}

}  // namespace vdnn
