#pragma once
// Explains a plan: which op sets the peak and which values are in memory then, the smallest budget and its
// cause, the gain from more memory, and how the step's time is spent. For single values and ops it explains
// the decision and its alternatives. All figures are predictions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/report/counterfactual.h"
#include "src/report/memory_use.h"
#include "src/report/step_time.h"
#include "vdnn/planned_run.h"

namespace vdnn {

struct CountedBytes {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
};

// The decisions of a plan, counted.
struct DecisionCounts {
  CountedBytes kept;  // values
  CountedBytes offloaded;
  CountedBytes recomputed;
  std::size_t slower_algorithms = 0;  // ops without their fastest algorithm
};

// The outcome of the same policy in another budget.
struct OtherBudget {
  std::uint64_t budget_bytes = 0;
  bool fits = false;
  std::uint64_t peak_bytes = 0;
  double step_seconds = 0;
  DecisionCounts decisions;
};

// The policy's plan in the smallest budget in which it runs.
struct SmallestBudget {
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;
  MemoryUse fullest;
  Irreducible there;  // the needs, under any decisions, of the op at the fullest moment
  Irreducible most;   // the needs of the op that needs most: a lower bound for every plan of every policy
  // Whether the peak is that lower bound in whole granules, so that no plan could need less.
  bool is_floor = false;
  // If not: the number of ops at which the bytes in use come within one granule of those at the fullest
  // moment. The op at that moment is one of them.
  std::size_t ops_near_peak = 0;
  std::uint64_t above_floor_bytes = 0;  // excess of the peak over that lower bound
};

struct Explanation {
  MemoryUse fullest;
  std::uint64_t peak_bytes = 0;  // committed; the excess over the bytes in use at the fullest moment is
                                 // alignment, gaps between blocks and whole granules
  SmallestBudget smallest;
  DecisionCounts decisions;
  // The policy in budgets that exceed the run's (or the smallest budget, if the run's does not suffice) by
  // 10, 25 and 50 % and by 2 GiB. They are in ascending order and end with the first budget in which the
  // policy has its shortest step. Empty for policies that ignore the budget.
  std::vector<OtherBudget> more;
  bool depends_on_budget = false;
  double unlimited_step_seconds = 0;  // of the policy in unlimited memory
  double oracle_step_seconds = 0;
  StepTime time;
};
// Makes a plan for each of these budgets.
Explanation explain(const PlannedRun& run);

// One value.
struct ExplainedValue {
  ValueId value = kNone;
  ValueDecision decision = ValueDecision::kUndecided;
  std::string undecided;  // why there is nothing to decide; empty if there is
  OpId made_by = kNone;   // kNone: loaded, or persistent
  std::vector<OpId> readers;
  std::vector<CopyTime> offloads;    // in the order of the schedule
  std::vector<CopyTime> prefetches;  // in the same order; several if the value comes back several times
  std::vector<OpId> recomputed_for;  // ops for which the value is recomputed
  // Kept, offloaded, recomputed, in this order; empty if there is nothing to decide.
  std::vector<Counterfactual> otherwise;
  // The result of remade(), if there are alternatives. If it is present, they are compared with it instead of
  // with the plan in force.
  std::optional<Counterfactual> remade;
};
ExplainedValue explain_value(const PlannedRun& run, ValueId value);

// One op.
struct ExplainedOp {
  OpId op = kNone;
  MemoryUse memory;
  Irreducible irreducible;
  std::uint32_t algorithm = 0;
  std::uint32_t fastest_algorithm = 0;
  std::vector<double> algorithm_seconds;       // by algorithm
  std::optional<Counterfactual> with_fastest;  // absent: the op has its fastest algorithm
  std::optional<Counterfactual> remade;        // see ExplainedValue
  double stall_seconds = 0;                    // the compute stream's wait before the op
};
ExplainedOp explain_op(const PlannedRun& run, OpId op);

// The value named `name`, or the values that the forward ops of the layer `name` make. Throws
// InvalidArgument, which suggests names, if there is neither.
std::vector<ValueId> find_values(const Tape& tape, const std::string& name);
OpId find_op(const Tape& tape, const std::string& name);

}  // namespace vdnn
