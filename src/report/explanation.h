#pragma once
// Why a plan is as it is: which op sets the peak and what is there then, what the smallest budget is and why,
// what more memory would buy, where the time goes; and of single values and ops, what was decided about them
// and what it would be like otherwise. All figures are predictions.

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

// Of a plan.
struct DecisionCounts {
  CountedBytes kept;  // values
  CountedBytes offloaded;
  CountedBytes recomputed;
  std::size_t slower_algorithms = 0;  // ops that do not have the fastest of theirs
};

// The same policy in another budget.
struct OtherBudget {
  std::uint64_t budget_bytes = 0;
  bool fits = false;
  std::uint64_t peak_bytes = 0;
  double step_seconds = 0;
  DecisionCounts decisions;
};

// Of the plan of the policy in the smallest budget that it runs in.
struct SmallestBudget {
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;
  MemoryUse fullest;
  Irreducible there;  // what the op at the fullest moment needs whatever is decided
  Irreducible most;   // of the op that needs most: the floor of every plan of every policy
  // That, in whole granules, is the peak: no plan could do with less, whatever else is in use at some moment.
  bool is_floor = false;
  // Else: the ops at which all but a granule of the fullest moment is in use, that op included.
  std::size_t ops_near_peak = 0;
  std::uint64_t above_floor_bytes = 0;  // the peak
};

struct Explanation {
  MemoryUse fullest;
  std::uint64_t peak_bytes = 0;  // committed; what is more than in use at the fullest moment goes to
                                 // alignment, gaps between blocks and whole granules
  SmallestBudget smallest;
  DecisionCounts decisions;
  // With 10, 25 and 50 % and with 2 GiB more than the budget (than the smallest, where that does not
  // suffice), in order of size, up to the first in which the step is as short as the policy can make it. None
  // for policies that do the same in any budget.
  std::vector<OtherBudget> more;
  bool depends_on_budget = false;
  double unlimited_step_seconds = 0;  // of the policy with memory without end
  double oracle_step_seconds = 0;
  StepTime time;
};
// Plans for each of those budgets.
Explanation explain(const PlannedRun& run);

// One value.
struct ExplainedValue {
  ValueId value = kNone;
  ValueDecision decision = ValueDecision::kUndecided;
  std::string undecided;  // why there is nothing to decide; empty where there is
  OpId made_by = kNone;   // kNone: loaded, or persistent
  std::vector<OpId> readers;
  std::vector<CopyTime> offloads;    // in the order of the list
  std::vector<CopyTime> prefetches;  // the same; several where it comes back several times
  std::vector<OpId> recomputed_for;  // ops before which it is made again and read from there
  // Kept, offloaded, recomputed, in this order; empty where there is nothing to decide.
  std::vector<Counterfactual> otherwise;
  std::optional<Counterfactual> remade;  // where it is not the plan in force, what the others compare with
};
ExplainedValue explain_value(const PlannedRun& run, ValueId value);

// One op.
struct ExplainedOp {
  OpId op = kNone;
  MemoryUse memory;
  Irreducible irreducible;
  std::uint32_t algorithm = 0;
  std::uint32_t fastest_algorithm = 0;
  std::vector<double> algorithm_seconds;       // an algorithm
  std::optional<Counterfactual> with_fastest;  // absent: it has it
  std::optional<Counterfactual> remade;        // as of a value
  double stall_seconds = 0;                    // that the compute stream waits before it
};
ExplainedOp explain_op(const PlannedRun& run, OpId op);

// The value of that name, or what the forward ops of the layer of that name make. Throws InvalidArgument with
// names that are near where there is neither.
std::vector<ValueId> find_values(const Tape& tape, const std::string& name);
OpId find_op(const Tape& tape, const std::string& name);

}  // namespace vdnn
