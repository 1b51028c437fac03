#include "src/run/sweep.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "vdnn/checker.h"
#include "vdnn/option_error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Plans the run in one precision and in any budget.
class PrecisionSweeper {
 public:
  explicit PrecisionSweeper(const PlannedRun& run)
      : run_(run), precision_(precision_name(run)), oracle_step_seconds_(oracle_step_seconds(run)) {}

  const std::string& precision() const { return precision_; }

  // The smallest budget of `optimal` does not depend on the run's budget.
  std::uint64_t smallest_budget_bytes() const {
    return plan_again(run_, Policy::kOptimal, run_.target.budget_bytes).smallest_budget_bytes();
  }

  // The budget that `none` needs with the fastest algorithms.
  std::uint64_t largest_budget_bytes() const {
    PlanOptions none = run_.plan.options;
    none.policy = Policy::kOffloadNone;
    none.preference = AlgorithmPreference::kPerformance;
    return predict_policy(run_, none).peak_bytes + run_.target.library_bytes;
  }

  SweepPoint plan(Approach approach, std::uint64_t budget, PlannedRun& planned) {
    planned = std::visit([&](auto which) { return plan_by(which, budget); }, approach);
    SweepPoint point = point_of(planned);
    point.approach = approach;
    return point;
  }

 private:
  PlannedRun plan_by(Policy policy, std::uint64_t budget) {
    if (policy == Policy::kOptimal || policy == Policy::kDynamic) {
      return plan_again(run_, policy, budget);
    }
    return in_budget(policy, budget, [&] { return plan_again(run_, policy, budget); });
  }

  PlannedRun plan_by(Peer peer, std::uint64_t budget) {
    if (peer == Peer::kRotor) {
      return plan_rotor(budget);
    }
    return in_budget(peer, budget,
                     [&] { return with_schedule(make_peer_schedule(*run_.tape, peer, options_of_peers())); });
  }

  // The plan of `approach` in `budget`. Static policies and most peers decide independently of the budget, so
  // `decide` is called once per approach.
  template <class Decide>
  PlannedRun in_budget(Approach approach, std::uint64_t budget, const Decide& decide) {
    auto known = static_.find(approach);
    if (known == static_.end()) {
      known = static_.emplace(approach, decide()).first;
    }
    return in_budget(known->second, budget);
  }

  static PlannedRun in_budget(PlannedRun planned, std::uint64_t budget) {
    planned.options.memory_bytes = budget;
    planned.target.budget_bytes = budget;
    return planned;
  }

  // The fastest plan that fits nearly always has the largest limit among those that fit. A binary search
  // finds this limit.
  PlannedRun plan_rotor(std::uint64_t budget) {
    if (!rotor_) {
      rotor_.emplace(*run_.tape, options_of_peers(), plan_costs(*run_.tape, prediction_options(run_)));
    }
    std::size_t least = 0;                       // does not fit
    std::size_t most = RotorSchedules::kLimits;  // may fit
    while (least < most) {
      const std::size_t middle = least + (most - least + 1) / 2;
      const PlannedRun* const planned = rotor_within(middle);
      if (planned == nullptr || planned->fits_in(budget)) {
        least = middle;
      } else {
        most = middle - 1;
      }
    }
    const PlannedRun* const found = rotor_within(least);
    return in_budget(found == nullptr ? smallest_rotor() : *found, budget);
  }

  const PlannedRun& smallest_rotor() {
    std::size_t limit = 0;
    while (rotor_within(limit) == nullptr) {
      ++limit;
    }
    return *rotor_within(limit);
  }

  // The plan of rotor within `limit`; null if the limit is too little memory.
  const PlannedRun* rotor_within(std::size_t limit) {
    auto known = rotor_plans_.find(limit);
    if (known == rotor_plans_.end()) {
      const std::optional<PlannedSchedule> schedule = rotor_->within(limit);
      known = rotor_plans_.emplace(limit, schedule ? std::optional(with_schedule(*schedule)) : std::nullopt)
                  .first;
    }
    return known->second ? &*known->second : nullptr;
  }

  PlanOptions options_of_peers() const {
    PlanOptions options = run_.plan.options;
    options.policy = Policy::kOffloadNone;
    return options;
  }

  PlannedRun with_schedule(PlannedSchedule planned) const {
    PlannedRun run = run_;
    run.plan = std::move(planned.plan);
    run.schedule = std::move(planned.schedule);
    require_valid(*run.tape, run.schedule);
    run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
    run.smallest_peak_bytes = run.prediction.peak_bytes;
    return run;
  }

  SweepPoint point_of(const PlannedRun& planned) const {
    return {.precision = precision_,
            .product_precisions = planned.product_precisions(),
            .budget_bytes = planned.target.budget_bytes,
            .fits = planned.fits(),
            .smallest_budget_bytes = planned.smallest_budget_bytes(),
            .step_seconds = planned.prediction.step_seconds,
            .stall_seconds = planned.prediction.stall_seconds,
            .peak_bytes = planned.prediction.peak_bytes,
            .host_bytes = planned.prediction.host_bytes,
            .offload_bytes = offload_bytes(*planned.tape, planned.schedule),
            .recomputed_ops = recomputed_ops(planned.schedule),
            .oracle_step_seconds = oracle_step_seconds_,
            .lower_bound_step_seconds = lower_bound_step_seconds(planned)};
  }

  const PlannedRun& run_;
  std::string precision_;
  double oracle_step_seconds_;
  std::map<Approach, PlannedRun> static_;
  std::optional<RotorSchedules> rotor_;
  std::map<std::size_t, std::optional<PlannedRun>> rotor_plans_;  // by limit
};

// Throws InvalidOption if a value occurs twice.
template <class Value, class Name>
void require_distinct(const char* option, const std::vector<Value>& values, const Name& name) {
  for (auto each = values.begin(); each != values.end(); ++each) {
    if (std::find(values.begin(), each, *each) != each) {
      throw InvalidOption({{.option = option, .value = ""}}, name(*each) + " is there twice");
    }
  }
}

class Sweeper {
 public:
  Sweeper(const std::vector<PlannedRun>& runs, const SweepOptions& options) : runs_(runs), options_(options) {
    require_possible();
    for (const PlannedRun& run : runs) {
      precisions_.emplace_back(run);
    }
  }

  Sweep sweep() {
    Sweep found{.precisions = names(), .approaches = approaches(), .points = {}, .last = runs_.front()};
    PlannedRun planned = runs_.front();
    for (const std::uint64_t budget : budgets()) {
      for (const Approach approach : found.approaches) {
        for (PrecisionSweeper& precision : precisions_) {
          found.points.push_back(precision.plan(approach, budget, planned));
          if (options_.swept) {
            options_.swept(found.points.back());
          }
          if (approach == found.approaches.front() && &precision == &precisions_.front()) {
            found.last = planned;
          }
        }
      }
    }
    return found;
  }

 private:
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    std::ranges::transform(runs_, std::back_inserter(result), precision_name);
    return result;
  }

  std::vector<Approach> approaches() const {
    std::vector<Approach> result(options_.policies.begin(), options_.policies.end());
    result.insert(result.end(), options_.peers.begin(), options_.peers.end());
    return result;
  }

  void require_possible() const {
    if (options_.points < 2 || options_.points > SweepOptions::kMostPoints) {
      throw InvalidOption({{.option = "points", .value = std::to_string(options_.points)}},
                          "must be from 2 to " + std::to_string(SweepOptions::kMostPoints));
    }
    if (options_.policies.empty()) {
      throw InvalidOption({{.option = "policies", .value = ""}}, "a sweep needs at least one");
    }
    if (runs_.empty()) {
      throw InvalidOption({{.option = "precisions", .value = ""}}, "a sweep needs at least one");
    }
    require_distinct("policies", options_.policies, [](Policy policy) { return to_string(policy); });
    require_distinct("peers", options_.peers, [](Peer peer) { return to_string(peer); });
    require_distinct("precisions", names(), std::identity());
  }

  std::vector<std::uint64_t> of_each_precision(std::uint64_t (PrecisionSweeper::*bytes)() const) const {
    std::vector<std::uint64_t> result;
    std::ranges::transform(precisions_, std::back_inserter(result), bytes);
    return result;
  }

  std::uint64_t first_budget() const {
    if (options_.from_bytes) {
      return *options_.from_bytes;
    }
    return std::ranges::min(of_each_precision(&PrecisionSweeper::smallest_budget_bytes));
  }

  std::uint64_t last_budget(std::uint64_t first) const {
    if (options_.to_bytes) {
      return *options_.to_bytes;
    }
    return std::max(first, std::ranges::max(of_each_precision(&PrecisionSweeper::largest_budget_bytes)));
  }

  std::vector<std::uint64_t> budgets() const {
    const std::uint64_t first = first_budget();
    const std::uint64_t last = last_budget(first);
    if (first == 0 || last < first) {
      throw InvalidOption({{.option = "from_bytes", .value = std::to_string(first)},
                           {.option = "to_bytes", .value = std::to_string(last)}},
                          "the first budget must be above 0, and the last at least as large");
    }
    const std::uint64_t granule = runs_.front().target.profile.granule_bytes;
    const double ratio = static_cast<double>(last) / static_cast<double>(first);
    std::vector<std::uint64_t> row{first};
    for (std::size_t each = 1; each + 1 < options_.points; ++each) {
      const double share = static_cast<double>(each) / static_cast<double>(options_.points - 1);
      const double budget = static_cast<double>(first) * std::pow(ratio, share);
      // A double cannot represent every number of bytes, so a budget may be slightly outside of the range.
      const std::uint64_t bytes =
          budget < static_cast<double>(last) ? std::max(first, static_cast<std::uint64_t>(budget)) : last;
      row.push_back(std::clamp(bytes / granule * granule, first, last));
    }
    row.push_back(last);
    row.erase(std::unique(row.begin(), row.end()), row.end());
    return row;
  }

  const std::vector<PlannedRun>& runs_;
  const SweepOptions& options_;
  std::vector<PrecisionSweeper> precisions_;
};

}  // namespace

std::string to_string(Approach approach) {
  return std::visit([](auto which) { return to_string(which); }, approach);
}

std::string series_name(const Sweep& sweep, const SweepPoint& point) {
  return to_string(point.approach) + (sweep.precisions.size() > 1 ? " in " + point.precision : "");
}

std::string precision_name(const PlannedRun& run) {
  const bool tf32 = run.precisions.matrix_products == ProductPrecision::kTf32;
  const DataType storage = run.options.training.precision.storage;
  return tf32 && !is_narrow(storage) ? "tf32" : to_string(storage);
}

Sweep sweep_budgets(const std::vector<PlannedRun>& runs, const SweepOptions& options) {
  return Sweeper(runs, options).sweep();
}

}  // namespace vdnn
