#include "vdnn/optimal_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
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

// How often ops step down in the search for addresses.
constexpr int kStepsDown = 4;
// Where there are no more gaps, plans are tried in which one more value leaves.
constexpr std::size_t kFewGaps = 40;

// Parts of the memory that plans try to leave free where no addresses are found.
constexpr std::array kSlacks{0.03, 0.08};

constexpr std::uint64_t kAny = ~std::uint64_t{0};

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
        layout_(problem_),
        caps_(optimal::workspace_caps(problem_)) {}

  PlannedSchedule choose() {
    // Everything kept, with the fastest algorithms: it shows what page-locked memory a step takes without
    // offloading, and there is a plan in any case.
    consider({.fates = optimal::Fates(problem_.gaps().size(), optimal::Fate::kKeep),
              .least_choice = std::vector<std::uint8_t>(problem_.slots(), 0)},
             problem_.most_bytes(), budgets_.device_bytes);
    const std::uint64_t host = budgets_.host_bytes - std::min(budgets_.host_bytes, host_bytes_of_a_step_);
    optimal::Search search(problem_, host);
    search.search_up_to(budgets_.device_bytes - std::min(budgets_.device_bytes, problem_.persistent_bytes()));
    choose_among(search.found());
    consider_static_policies();
    find_smallest(search);
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
      consider(each.decisions, each.bytes, budgets_.device_bytes);
    }
  }

  // All sizes that may lead to less than what is known, so that it is the same whatever the budget; of each
  // the plan with the smallest workspaces.
  void find_smallest(optimal::Search& search) {
    std::uint64_t last = 0;
    const auto may_lead_to_less = [&](std::uint64_t bytes) {
      return committed_bytes(bytes) < smallest_forecast_.peak_bytes;
    };
    for (std::size_t each = 0;; ++each) {
      while (each == search.found().size() && search.next_bytes() && may_lead_to_less(*search.next_bytes())) {
        search.search_next();
      }
      if (each == search.found().size()) {
        return;
      }
      const optimal::Found& found = search.found()[each];
      if (!may_lead_to_less(found.bytes)) {
        return;
      }
      if (found.bytes != last) {
        consider(found.decisions, found.bytes, committed_bytes(found.bytes));
      }
      last = found.bytes;
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
  // way. Also whatever takes less than all that is known.
  void consider(const optimal::Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
    if (!layout_.evaluate(decisions, bytes).feasible() || consider_as_evaluated(bytes, enough)) {
      return;
    }
    if (problem_.gaps().size() <= kFewGaps && consider_with_moves(decisions, bytes, enough)) {
      return;
    }
    if (!consider_with_steps(decisions, bytes, enough) && !consider_with_slack(decisions, bytes, enough) &&
        !consider_with_caps(decisions, bytes, enough)) {
      layout_.evaluate(decisions, bytes);
      consider_with_delays(bytes, enough);
    }
  }

  // Results give way (they are smaller than a granule); then one more value leaves, for another address. All
  // of that is tried: any may be the fastest that fits.
  bool consider_with_moves(const optimal::Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
    constexpr optimal::GiveWay kResults{.results = true};
    layout_.evaluate(decisions, bytes);
    optimal::Decisions as_chosen =
        decisions;  // what the value leaves behind is for its way back, not for ops
    for (OpId op = 0; op < problem_.slots(); ++op) {
      as_chosen.least_choice[op] = static_cast<std::uint8_t>(layout_.choice(op));
    }
    bool fits = consider_as_evaluated(bytes, enough, kResults);
    for (std::uint32_t gap = 0; gap < decisions.fates.size(); ++gap) {
      optimal::Decisions moved = as_chosen;
      moved.fates[gap] = optimal::Fate::kOffload;
      if (decisions.fates[gap] == optimal::Fate::kKeep && layout_.evaluate(moved, bytes).feasible()) {
        fits = consider_as_evaluated(bytes, enough, kResults) || fits;
      }
    }
    return fits;
  }

  // Nothing gives way but the workspaces of ops that lie too high, a few times. False: it does not fit.
  bool consider_with_steps(optimal::Decisions decisions, std::uint64_t bytes, std::uint64_t enough) {
    for (int attempt = 0; attempt < kStepsDown; ++attempt) {
      layout_.evaluate(decisions, bytes);
      PlannedSchedule candidate = arranged(bytes, {}, enough);
      if (committed_bytes(candidate.schedule.arena_bytes) <= enough) {
        forecast(std::move(candidate));
        return true;
      }
      const std::vector<OpId> too_high = ops_too_high(candidate.schedule, bytes);
      forecast_if_small(std::move(candidate), enough);
      bool stepped = false;
      for (const OpId op : too_high) {
        const std::uint32_t choice = layout_.choice(op);
        std::uint32_t next = choice;
        for (int step = 0; step <= attempt; ++step) {
          next = problem_.next_smaller(op, next);
        }
        decisions.least_choice[op] = static_cast<std::uint8_t>(next);
        stepped = stepped || next != choice;
      }
      if (!stepped) {
        return false;
      }
    }
    return false;
  }

  // A little memory stays free wherever it can.
  bool consider_with_slack(const optimal::Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
    return std::ranges::any_of(kSlacks, [&](double slack) {
      layout_.evaluate(decisions, bytes, slack);
      return consider_as_evaluated(bytes, enough);
    });
  }

  // Less and less workspace for every op, and some slack.
  bool consider_with_caps(optimal::Decisions decisions, std::uint64_t bytes, std::uint64_t enough) {
    const std::vector<std::uint8_t> uncapped = decisions.least_choice;
    return std::ranges::any_of(std::span(caps_).subspan(1), [&](const std::vector<std::uint8_t>& cap) {
      std::ranges::transform(uncapped, cap, decisions.least_choice.begin(),
                             [](std::uint8_t mine, std::uint8_t limit) { return std::max(mine, limit); });
      layout_.evaluate(decisions, bytes, kSlacks.back());
      return consider_as_evaluated(bytes, enough);
    });
  }

  // False: it does not fit.
  bool consider_as_evaluated(std::uint64_t bytes, std::uint64_t enough, optimal::GiveWay give_way = {}) {
    PlannedSchedule candidate = arranged(bytes, give_way, enough);
    const bool fits = committed_bytes(candidate.schedule.arena_bytes) <= enough;
    forecast_if_small(std::move(candidate), enough);
    return fits;
  }

  // Of what was evaluated last: what is resident without need gives way. Where ops are held up, less room may
  // be the faster.
  void consider_with_delays(std::uint64_t bytes, std::uint64_t enough) {
    std::uint64_t committed = 0;
    for (const optimal::GiveWay& give_way : std::span(optimal::kWaysToGive).subspan(1)) {
      // Results are smaller than a granule.
      if (give_way.results &&
          committed > std::max(enough, smallest_forecast_.peak_bytes) + costs_.granule_bytes) {
        continue;
      }
      PlannedSchedule candidate = arranged(with_room(bytes, give_way), give_way, enough);
      if (give_way.room > 0 && has_holes(candidate.schedule)) {
        continue;
      }
      const bool may_give_way = !candidate.plan.transfers.empty();
      committed = committed_bytes(candidate.schedule.arena_bytes);
      forecast_if_small(std::move(candidate), enough);
      const bool held_up = give_way.copies == optimal::GiveWay::Copies::kAll;
      if ((committed <= enough && !held_up) || !may_give_way) {
        return;
      }
    }
  }

  // Whose workspaces reach beyond the goal; or, where none does, those that other buffers which do were kept
  // from lying lower by.
  std::vector<OpId> ops_too_high(const Schedule& schedule, std::uint64_t goal) const {
    std::vector<OpId> op_of(schedule.buffers.size(), kNone);
    for (const Instruction& instruction : schedule.instructions) {
      if (is_launch(instruction.kind) && instruction.operands.back() != kNone) {
        op_of[instruction.operands.back()] = instruction.op;
      }
    }
    const std::vector<Lifetime> all = lifetimes(schedule);
    std::vector<OpId> high;
    std::vector<OpId> beside;
    for (const Lifetime& one : all) {
      const Buffer& buffer = schedule.buffers[one.buffer];
      if (*buffer.offset + buffer.bytes <= goal) {
        continue;
      }
      if (op_of[one.buffer] != kNone) {
        high.push_back(op_of[one.buffer]);
        continue;
      }
      for (const Lifetime& other : all) {
        if (op_of[other.buffer] != kNone && other.begin < one.end && one.begin < other.end) {
          beside.push_back(op_of[other.buffer]);
        }
      }
    }
    return high.empty() ? beside : high;
  }

  // What was evaluated last. To be forecast only within `enough` bytes, or where it takes less than all that
  // is known.
  PlannedSchedule arranged(std::uint64_t goal, const optimal::GiveWay& give_way, std::uint64_t enough) const {
    PlannedSchedule candidate;
    candidate.plan.options = options_;
    layout_.write(candidate.plan);
    const std::uint64_t most = smallest_ ? std::max(enough, smallest_forecast_.peak_bytes) : kAny;
    candidate.schedule = optimal::arrange(problem_, candidate.plan, goal, give_way,
                                          most - std::min(most, problem_.persistent_bytes()));
    return candidate;
  }

  void forecast_if_small(PlannedSchedule candidate, std::uint64_t enough) {
    const std::uint64_t committed = committed_bytes(candidate.schedule.arena_bytes);
    if (committed <= enough || !smallest_ || committed < smallest_forecast_.peak_bytes) {
      forecast(std::move(candidate));
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
    const Forecast said = forecaster_.forecast(tape_, candidate.schedule);
    if (!smallest_) {
      host_bytes_of_a_step_ = said.host_bytes;
    }
    if (said.fits(budgets_) && (!best_ || said.step_seconds < best_seconds_)) {
      best_ = candidate;
      best_seconds_ = said.step_seconds;
    }
    const auto rank = [&](const Forecast& one) {
      return std::pair(one.host_bytes > budgets_.host_bytes, one.peak_bytes);
    };
    if (!smallest_ || rank(said) < rank(smallest_forecast_)) {
      smallest_ = std::move(candidate);
      smallest_forecast_ = said;
    }
  }

  const Tape& tape_;
  const PlanOptions& options_;
  const Budgets& budgets_;
  const PlanCosts& costs_;
  const Forecaster& forecaster_;
  optimal::Problem problem_;
  optimal::Layout layout_;
  std::vector<std::vector<std::uint8_t>> caps_;
  std::optional<PlannedSchedule> best_;
  double best_seconds_ = 0;
  std::optional<PlannedSchedule> smallest_;
  Forecast smallest_forecast_;
  std::uint64_t host_bytes_of_a_step_ = 0;  // without offloads: of the plan that is forecast first
};

}  // namespace

PlannedSchedule plan_optimal(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                             const PlanCosts& costs, const Forecaster& forecaster) {
  return Chooser(tape, options, budgets, costs, forecaster).choose();
}

}  // namespace vdnn
