#include "src/train/sweep.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

class Sweeper {
 public:
  Sweeper(const PlannedRun& run, const SweepOptions& options) : run_(run), options_(options) {
    require_possible();
  }

  Sweep sweep() {
    const std::vector<std::uint64_t> row = budgets();
    const double oracle = oracle_step_seconds(run_);
    std::vector<SweepPoint> points;
    std::optional<PlannedRun> last;
    for (const std::uint64_t budget : row) {
      for (const Policy policy : options_.policies) {
        PlannedRun planned = plan(policy, budget);
        points.push_back(point_of(planned, oracle));
        if (options_.swept) {
          options_.swept(points.back());
        }
        if (policy == options_.policies.front()) {
          last = std::move(planned);
        }
      }
    }
    return {.points = std::move(points), .last = *std::move(last)};
  }

 private:
  void require_possible() const {
    if (options_.points < 2 || options_.points > SweepOptions::kMostPoints) {
      throw InvalidArgument("--points " + std::to_string(options_.points) + ": must be from 2 to " +
                            std::to_string(SweepOptions::kMostPoints));
    }
    if (options_.policies.empty()) {
      throw InvalidArgument("--policy: there is none to sweep");
    }
    for (auto policy = options_.policies.begin(); policy != options_.policies.end(); ++policy) {
      if (std::find(options_.policies.begin(), policy, *policy) != policy) {
        throw InvalidArgument("--policy: " + to_string(*policy) + " is there twice");
      }
    }
  }

  std::uint64_t first_budget() const {
    if (options_.from_bytes) {
      return *options_.from_bytes;
    }
    // What `optimal` needs at least does not depend on the budget that it is asked with.
    return plan_again(run_, Policy::kOptimal, run_.target.budget_bytes).smallest_budget_bytes();
  }

  std::uint64_t last_budget(std::uint64_t first) const {
    if (options_.to_bytes) {
      return *options_.to_bytes;
    }
    PlanOptions none = run_.plan.options;
    none.policy = Policy::kOffloadNone;
    none.preference = AlgorithmPreference::kPerformance;
    return std::max(first, predict_policy(run_, none).peak_bytes + run_.target.library_bytes);
  }

  std::vector<std::uint64_t> budgets() const {
    const std::uint64_t first = first_budget();
    const std::uint64_t last = last_budget(first);
    if (first == 0 || last < first) {
      throw InvalidArgument("--from " + format_size(first) + " --to " + format_size(last) +
                            ": budgets go from more than nothing upwards");
    }
    const std::uint64_t granule = run_.target.profile.granule_bytes;
    const double ratio = static_cast<double>(last) / static_cast<double>(first);
    std::vector<std::uint64_t> row{first};
    for (std::size_t each = 1; each + 1 < options_.points; ++each) {
      const double share = static_cast<double>(each) / static_cast<double>(options_.points - 1);
      const double budget = static_cast<double>(first) * std::pow(ratio, share);
      // Doubles are coarser than bytes: one may lie a little outside.
      const std::uint64_t bytes =
          budget < static_cast<double>(last) ? std::max(first, static_cast<std::uint64_t>(budget)) : last;
      row.push_back(std::clamp(bytes / granule * granule, first, last));
    }
    row.push_back(last);
    row.erase(std::unique(row.begin(), row.end()), row.end());
    return row;
  }

  // What static policies decide does not depend on the budget.
  PlannedRun plan(Policy policy, std::uint64_t budget) {
    if (policy == Policy::kOptimal || policy == Policy::kDynamic) {
      return plan_again(run_, policy, budget);
    }
    auto known = static_.find(policy);
    if (known == static_.end()) {
      known = static_.emplace(policy, plan_again(run_, policy, budget)).first;
    }
    PlannedRun planned = known->second;
    planned.options.memory_bytes = budget;
    planned.target.budget_bytes = budget;
    return planned;
  }

  static SweepPoint point_of(const PlannedRun& planned, double oracle) {
    return {.policy = planned.plan.options.policy,
            .budget_bytes = planned.target.budget_bytes,
            .fits = planned.fits(),
            .smallest_budget_bytes = planned.smallest_budget_bytes(),
            .step_seconds = planned.prediction.step_seconds,
            .stall_seconds = planned.prediction.stall_seconds,
            .peak_bytes = planned.prediction.peak_bytes,
            .host_bytes = planned.prediction.host_bytes,
            .offload_bytes = offload_bytes(*planned.tape, planned.schedule),
            .recomputed_ops = recomputed_ops(planned.schedule),
            .oracle_step_seconds = oracle,
            .lower_bound_step_seconds = lower_bound_step_seconds(planned)};
  }

  const PlannedRun& run_;
  const SweepOptions& options_;
  std::map<Policy, PlannedRun> static_;
};

}  // namespace

Sweep sweep_budgets(const PlannedRun& run, const SweepOptions& options) {
  return Sweeper(run, options).sweep();
}

}  // namespace vdnn
