#pragma once
// What does memory buy, and what does precision? One run planned in a row of device budgets, under several
// policies and in several precisions: the frontier of budget against time.

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

// One approach in one budget and precision, as plan_run() says of a policy.
struct SweepPoint {
  Approach approach = Policy::kOptimal;
  std::string precision;                 // precision_name()
  ProductPrecisions product_precisions;  // of its plan
  std::uint64_t budget_bytes = 0;
  bool fits = false;
  std::uint64_t smallest_budget_bytes = 0;  // of the approach in this precision
  // Of its plan. What does not fit has one that takes more, and what a step would take there is no matter.
  double step_seconds = 0;
  double stall_seconds = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_bytes = 0;     // page-locked
  std::uint64_t offload_bytes = 0;  // a step
  std::size_t recomputed_ops = 0;
  // `none` with the fastest algorithms of this precision in unlimited memory; a plan that hides the next
  // input's load can be below it.
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
  std::vector<Peer> peers;  // each once
  // Bytes, > 0. Absent: the smallest budget of `optimal`, and what `none` needs with performance-optimal
  // algorithms; at least `from_bytes`. Of several precisions, from that of the least to that of the most.
  std::optional<std::uint64_t> from_bytes;
  std::optional<std::uint64_t> to_bytes;
  std::size_t points = 12;  // budgets, in equal ratios; 2 to kMostPoints
  // Told of each point as it is found. May be empty.
  std::function<void(const SweepPoint&)> swept;
};

struct Sweep {
  std::vector<std::string> precisions;  // in the order asked for
  std::vector<Approach> approaches;     // policies, then peers, likewise
  // By budget, ascending; of a budget, by approach; of that, by precision.
  std::vector<SweepPoint> points;
  PlannedRun last;  // the first policy in the first precision and the largest budget
};

// Of the point's line in a table or a picture: "optimal", or, of several precisions, "optimal in bf16".
std::string series_name(const Sweep& sweep, const SweepPoint& point);

// "bf16", "fp16", "fp32", or "tf32" where the run stores fp32 and its matrix products may round to TF32.
std::string precision_name(const PlannedRun& run);

// The same run in one or several precisions, which nothing else tells apart. Their policies and budgets are
// not looked at, all else is as there. Budgets are rounded down to whole granules, the first and the last
// aside, and none comes twice. Throws InvalidArgument for options that cannot be, for no run, and for a
// precision that comes twice.
Sweep sweep_budgets(const std::vector<PlannedRun>& runs, const SweepOptions& options);

}  // namespace vdnn
