#pragma once
// What does memory buy? One run planned in a row of device budgets, under several policies: the frontier of
// budget against time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "vdnn/planned_run.h"

namespace vdnn {

// One policy in one budget, as plan_run() says.
struct SweepPoint {
  Policy policy = Policy::kOptimal;
  std::uint64_t budget_bytes = 0;
  bool fits = false;
  std::uint64_t smallest_budget_bytes = 0;  // of the policy
  // Of its plan. What does not fit has one that takes more, and what a step would take there is no matter.
  double step_seconds = 0;
  double stall_seconds = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_bytes = 0;     // page-locked
  std::uint64_t offload_bytes = 0;  // a step
  std::size_t recomputed_ops = 0;
  // `none` with the fastest algorithms in unlimited memory; a plan that hides the next input's load can be
  // below it.
  double oracle_step_seconds = 0;
  double lower_bound_step_seconds = 0;  // in that budget

  // How much longer a step is: 0.1 for 10 %.
  double over_oracle() const { return step_seconds / oracle_step_seconds - 1; }
  double over_lower_bound() const { return step_seconds / lower_bound_step_seconds - 1; }
};

struct SweepOptions {
  static constexpr std::size_t kMostPoints = 1000;
  // Each once.
  std::vector<Policy> policies{Policy::kOptimal, Policy::kOffloadNone, Policy::kOffloadConv,
                               Policy::kOffloadAll, Policy::kDynamic};
  // Bytes, > 0. Absent: the smallest budget of `optimal`, and what `none` needs with performance-optimal
  // algorithms; at least `from_bytes`.
  std::optional<std::uint64_t> from_bytes;
  std::optional<std::uint64_t> to_bytes;
  std::size_t points = 12;  // budgets, in equal ratios; 2 to kMostPoints
  // Told of each point as it is found. May be empty.
  std::function<void(const SweepPoint&)> swept;
};

struct Sweep {
  std::vector<SweepPoint> points;  // by budget, ascending; the policies in the order asked for
  PlannedRun last;                 // the first policy in the largest budget
};

// Of `run` its own policy and budget are not looked at, all else is as there. Budgets are rounded down to
// whole granules, the first and the last aside, and none comes twice. Throws InvalidArgument for options that
// cannot be.
Sweep sweep_budgets(const PlannedRun& run, const SweepOptions& options);

}  // namespace vdnn
