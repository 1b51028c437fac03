#include "src/train/sweep.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// The run in one precision.
class PrecisionSweeper {
 public:
  explicit PrecisionSweeper(const PlannedRun& run)
      : run_(run), precision_(precision_name(run)), oracle_step_seconds_(oracle_step_seconds(run)) {}

  const std::string& precision() const { return precision_; }

  // What `optimal` needs at least does not depend on the budget that it is asked with.
  std::uint64_t smallest_budget_bytes() const {
    return plan_again(run_, Policy::kOptimal, run_.target.budget_bytes).smallest_budget_bytes();
  }

  // What `none` needs with its fastest algorithms.
  std::uint64_t largest_budget_bytes() const {
    PlanOptions none = run_.plan.options;
    none.policy = Policy::kOffloadNone;
    none.preference = AlgorithmPreference::kPerformance;
    return predict_policy(run_, none).peak_bytes + run_.target.library_bytes;
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

  SweepPoint point_of(const PlannedRun& planned) const {
    return {.policy = planned.plan.options.policy,
            .precision = precision_,
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

 private:
  const PlannedRun& run_;
  std::string precision_;
  double oracle_step_seconds_;
  std::map<Policy, PlannedRun> static_;
};

// Throws where something is there twice.
template <class Value, class Name>
void require_distinct(const char* option, const std::vector<Value>& values, const Name& name) {
  for (auto each = values.begin(); each != values.end(); ++each) {
    if (std::find(values.begin(), each, *each) != each) {
      throw InvalidArgument(std::string(option) + ": " + name(*each) + " is there twice");
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
    Sweep found{.precisions = names(), .points = {}, .last = runs_.front()};
    for (const std::uint64_t budget : budgets()) {
      for (const Policy policy : options_.policies) {
        for (PrecisionSweeper& precision : precisions_) {
          PlannedRun planned = precision.plan(policy, budget);
          found.points.push_back(precision.point_of(planned));
          if (options_.swept) {
            options_.swept(found.points.back());
          }
          if (policy == options_.policies.front() && &precision == &precisions_.front()) {
            found.last = std::move(planned);
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

  void require_possible() const {
    if (options_.points < 2 || options_.points > SweepOptions::kMostPoints) {
      throw InvalidArgument("--points " + std::to_string(options_.points) + ": must be from 2 to " +
                            std::to_string(SweepOptions::kMostPoints));
    }
    if (options_.policies.empty()) {
      throw InvalidArgument("--policy: there is none to sweep");
    }
    if (runs_.empty()) {
      throw InvalidArgument("--precision: there is none to sweep");
    }
    require_distinct("--policy", options_.policies, [](Policy policy) { return to_string(policy); });
    require_distinct("--precision", names(), std::identity());
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
      throw InvalidArgument("--from " + format_size(first) + " --to " + format_size(last) +
                            ": budgets go from more than nothing upwards");
    }
    const std::uint64_t granule = runs_.front().target.profile.granule_bytes;
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

  const std::vector<PlannedRun>& runs_;
  const SweepOptions& options_;
  std::vector<PrecisionSweeper> precisions_;
};

}  // namespace

std::string series_name(const Sweep& sweep, const SweepPoint& point) {
  return to_string(point.policy) + (sweep.precisions.size() > 1 ? " in " + point.precision : "");
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
