#pragma once
// Shows the trade-off between memory and time. Plans one run in a series of device budgets, under several
// policies and in several precisions.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/plan/peers/peers.h"
#include "vdnn/planned_run.h"

namespace vdnn {

using Approach = std::variant<Policy, Peer>;
std::string to_string(Approach approach);

// The plan of one approach in one budget and precision. For a policy, the figures equal those of plan_run().
struct SweepPoint {
  Approach approach = Policy::kOptimal;
  std::string precision;                 // the result of precision_name()
  ProductPrecisions product_precisions;  // those of the planned run
  std::uint64_t budget_bytes = 0;
  bool fits = false;
  std::uint64_t smallest_budget_bytes = 0;  // that of the approach in this precision
  // The figures of the plan. If the approach does not fit, they are the figures of a plan that needs more
  // memory.
  double step_seconds = 0;
  double stall_seconds = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_bytes = 0;     // page-locked
  std::uint64_t offload_bytes = 0;  // per step
  std::size_t recomputed_ops = 0;
  // The step of `none` with the fastest algorithms of this precision in unlimited memory. A plan that hides
  // the load of the next input can be faster.
  double oracle_step_seconds = 0;
  double lower_bound_step_seconds = 0;  // in this budget

  // How much longer a step is than the oracle's, and than the lower bound: 0.1 for 10 %.
  double over_oracle() const { return step_seconds / oracle_step_seconds - 1; }
  double over_lower_bound() const { return step_seconds / lower_bound_step_seconds - 1; }
};

struct SweepOptions {
  static constexpr std::size_t kMostPoints = 1000;
  // No policy may occur twice.
  std::vector<Policy> policies{Policy::kOptimal, Policy::kOffloadNone, Policy::kOffloadConv,
                               Policy::kOffloadAll, Policy::kDynamic};
  std::vector<Peer> peers;  // no peer may occur twice
  // The first and the last budget, > 0. By default `from_bytes` is the smallest budget of `optimal` in any
  // precision. By default `to_bytes` is what `none` needs with performance-optimal algorithms, in the
  // precision that needs most; it is at least `from_bytes`.
  std::optional<std::uint64_t> from_bytes;
  std::optional<std::uint64_t> to_bytes;
  std::size_t points = 12;  // number of budgets, each in the same ratio to the previous one; 2 to kMostPoints
  // Called with each point once it is planned. May be empty.
  std::function<void(const SweepPoint&)> swept;
};

struct Sweep {
  std::vector<std::string> precisions;  // in the order of the runs
  std::vector<Approach> approaches;     // policies, then peers, in the order of the options
  // Sorted by budget, ascending, then by approach, then by precision.
  std::vector<SweepPoint> points;
  PlannedRun last;  // the run of the first policy in the first precision and the largest budget
};

// The name of the point's line in a table or a picture: "optimal", or "optimal in bf16" with several
// precisions.
std::string series_name(const Sweep& sweep, const SweepPoint& point);

// Returns "bf16", "fp16", "fp32" or "tf32". It is "tf32" if the run stores fp32 and its matrix products may
// round to TF32.
std::string precision_name(const PlannedRun& run);

// `runs` are the same run in different precisions; they must differ in nothing else. Their policies and
// budgets are ignored. All budgets except the first and the last are rounded down to whole granules, and none
// occurs twice. Throws InvalidArgument for impossible options, for no run, and for a precision that occurs
// twice.
Sweep sweep_budgets(const std::vector<PlannedRun>& runs, const SweepOptions& options);

}  // namespace vdnn
