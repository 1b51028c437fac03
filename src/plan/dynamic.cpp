#include "src/plan/dynamic.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "src/plan/residency.h"
#include "vdnn/plan_search.h"

namespace vdnn {

std::vector<std::uint64_t> bytes_beside_workspace(const Tape& tape, const Schedule& schedule) {
  const std::vector<std::uint64_t> in_use = bytes_in_use(schedule);
  std::vector<std::uint64_t> beside(tape.ops().size(), 0);
  for (std::uint32_t when = 0; when < in_use.size(); ++when) {
    const Instruction& instruction = schedule.instructions[when];
    if (instruction.kind == InstructionKind::kLaunch) {
      const BufferId workspace = instruction.workspace();
      const std::uint64_t own = workspace == kNone ? 0 : schedule.buffers[workspace].bytes;
      beside[instruction.launched_op()] = std::max(beside[instruction.launched_op()], in_use[when] - own);
    }
  }
  return beside;
}

namespace {

// The first algorithm whose workspace fits. It is the fastest of those that fit, since algorithms are listed
// from the fastest to the slowest.
std::uint32_t first_that_fits(const Op& op, std::uint64_t workspace_bytes) {
  const auto fits = std::ranges::find_if(op.algorithms, [&](const Algorithm& algorithm) {
    return algorithm.workspace_bytes <= workspace_bytes;
  });
  const auto found = fits != op.algorithms.end()
                         ? fits
                         : std::ranges::min_element(op.algorithms, {}, &Algorithm::workspace_bytes);
  return static_cast<std::uint32_t>(found - op.algorithms.begin());
}

}  // namespace

std::vector<std::uint32_t> greedy_algorithms(const Tape& tape, const PlanOptions& options,
                                             const std::vector<std::uint64_t>& beside,
                                             std::uint64_t device_bytes) {
  const std::uint64_t limit = options.workspace_limit.value_or(std::numeric_limits<std::uint64_t>::max());
  std::vector<std::uint32_t> algorithms;
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    const std::uint64_t room = device_bytes > beside[id] ? device_bytes - beside[id] : 0;
    algorithms.push_back(first_that_fits(tape.op(id), std::min(room, limit)));
  }
  return algorithms;
}

namespace {

// Whether the algorithm takes several times as long as the op's first algorithm, on every device.
bool is_fallback(const Op& op, std::uint32_t algorithm) {
  constexpr double kSeveral = 3;
  const Cost& cost = op.cost_with(algorithm);
  const Cost& first = op.cost_with(0);
  return cost.seconds > 0 || first.seconds > 0
             ? cost.seconds > kSeveral * first.seconds
             : cost.flops > kSeveral * first.flops && cost.bytes > kSeveral * first.bytes;
}

class DynamicPolicy {
 public:
  DynamicPolicy(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                const Forecaster& forecaster)
      : tape_(tape), options_(options), budgets_(budgets), forecaster_(forecaster) {}

  Plan plan() const {
    Plan chosen = choose();
    chosen.options = options_;
    chosen.options.policy = Policy::kDynamic;
    return chosen;
  }

 private:
  // The largest number of greedy walks over the ops. A walk ignores fragmentation, which depends on the
  // chosen algorithms. So if the plan of a walk exceeds the budget, the next walk's budget is smaller by the
  // excess. Without a limit, the walks might never end.
  static constexpr int kWalks = 8;

  Plan choose() const {
    Plan least = static_plan(Policy::kOffloadAll, AlgorithmPreference::kMemory);
    if (!fits(least)) {
      return least;
    }
    for (const Policy policy : {Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
      Plan fastest = static_plan(policy, AlgorithmPreference::kPerformance);
      if (fits(fastest)) {
        return fastest;
      }
    }
    if (!options_.recorded.empty()) {
      return least;
    }
    for (const Policy policy : {Policy::kOffloadConv, Policy::kOffloadAll}) {
      if (std::optional<Plan> stepped_down = greedy(policy)) {
        return without_needless_fallbacks(*std::move(stepped_down));
      }
    }
    return without_needless_fallbacks(std::move(least));
  }

  Plan static_plan(Policy policy, AlgorithmPreference preference) const {
    PlanOptions options = options_;
    options.policy = policy;
    options.preference = preference;
    return make_plan(tape_, options);
  }

  Forecast forecast(const Plan& plan) const {
    return forecaster_.forecast(tape_, make_schedule(tape_, plan));
  }

  bool fits(const Plan& plan) const { return forecast(plan).fits(budgets_); }

  // Replaces each fallback by the op's first algorithm that is not a fallback and with which the plan fits.
  // If there is none, keeps the fallback.
  Plan without_needless_fallbacks(Plan plan) const {
    const std::vector<std::uint64_t> beside = bytes_beside_workspace(tape_, make_schedule(tape_, plan));
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      const Op& op = tape_.op(id);
      for (std::uint32_t other = 0; is_fallback(op, plan.algorithms[id]) && other < plan.algorithms[id];
           ++other) {
        if (is_fallback(op, other) || !obeys_limits(op.algorithms[other], beside[id])) {
          continue;
        }
        Plan stepped_up = plan;
        stepped_up.algorithms[id] = other;
        if (fits(stepped_up)) {
          plan = std::move(stepped_up);
        }
      }
    }
    return plan;
  }

  bool obeys_limits(const Algorithm& algorithm, std::uint64_t beside_bytes) const {
    return algorithm.workspace_bytes <= options_.workspace_limit.value_or(algorithm.workspace_bytes) &&
           beside_bytes + algorithm.workspace_bytes <= budgets_.device_bytes;
  }

  std::optional<Plan> greedy(Policy policy) const {
    Plan plan = static_plan(policy, AlgorithmPreference::kPerformance);
    const std::vector<std::uint64_t> beside = bytes_beside_workspace(tape_, make_schedule(tape_, plan));
    std::uint64_t walk_bytes = budgets_.device_bytes;
    for (int walk = 0; walk < kWalks; ++walk) {
      plan.algorithms = greedy_algorithms(tape_, options_, beside, walk_bytes);
      const Forecast expected = forecast(plan);
      if (expected.fits(budgets_)) {
        return plan;
      }
      // If only page-locked memory is missing, other algorithms do not help: its use does not depend on them.
      if (expected.peak_bytes <= budgets_.device_bytes) {
        return std::nullopt;
      }
      const std::uint64_t overshoot = expected.peak_bytes - budgets_.device_bytes;
      if (overshoot >= walk_bytes) {
        return std::nullopt;
      }
      walk_bytes -= overshoot;
    }
    return std::nullopt;
  }

  const Tape& tape_;
  const PlanOptions& options_;
  const Budgets& budgets_;
  const Forecaster& forecaster_;
};

}  // namespace

Plan plan_dynamic(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                  const Forecaster& forecaster) {
  const PlanOptions kept = with_kept_algorithms(tape, options);
  return DynamicPolicy(tape, kept, budgets, forecaster).plan();
}

}  // namespace vdnn
