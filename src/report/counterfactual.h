#pragma once
// Predicts a step with one decision of the plan changed. The schedule is made anew and runs on the `sim`
// driver, as in the prediction of the plan itself.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/report/value_decision.h"
#include "vdnn/planned_run.h"

namespace vdnn {

// The next op after that instruction that is launched for the first time. Ops that are recomputed in between
// are recomputed for this op.
OpId launch_after(const Schedule& schedule, std::uint32_t instruction);

// The reason why there is nothing to decide about a value; empty if there is something to decide.
std::string why_undecided(const PlannedRun& run, ValueId value);

struct Counterfactual {
  std::string impossible;  // why the alternative is impossible; the other fields are then unset
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_bytes = 0;
  bool fits = false;
  std::uint64_t missing_bytes = 0;  // beyond the device budget
  double step_seconds = 0;
};

// The prediction of the plan in force.
Counterfactual as_planned(const PlannedRun& run);
// The prediction of the plan's own decisions with a schedule made anew, as for the alternatives below. If
// addresses are planned, those of the plan in force are kept where possible, or all are searched for again in
// the whole budget, whichever is better. Absent if time and memory equal those of the plan in force. If they
// differ, the difference is not due to a decision.
std::optional<Counterfactual> remade(const PlannedRun& run);
// The prediction of the plan with one change: `decision` for the gap of `value` between its last use in the
// forward pass and its next use, and no other decision for this value. why_undecided() must be empty.
//
// An offloaded value is copied out when it is made and released after its last use in the forward pass. Its
// fetch starts so early that the ops up to its first reader take as long as a copy on a free link. A
// recomputed value is computed for the first op that needs it, or earlier for values recomputed from it, if
// that is better.
Counterfactual decided_otherwise(const PlannedRun& run, ValueId value, ValueDecision decision);
// The prediction of the plan with another algorithm of `op`; `algorithm` is an index into Op::algorithms.
Counterfactual computed_otherwise(const PlannedRun& run, OpId op, std::uint32_t algorithm);

}  // namespace vdnn
