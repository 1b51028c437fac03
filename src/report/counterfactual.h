#pragma once
// What if one decision of a plan were another one? Answered by making the schedule anew and running it on the
// `sim` driver, as the plan's own was predicted.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/report/value_decision.h"
#include "vdnn/planned_run.h"

namespace vdnn {

// The op that is launched next for the first time after that instruction: what is made again before it is
// made again for it.
OpId launch_after(const Schedule& schedule, std::uint32_t instruction);

// Why there is nothing to decide about a value; empty where there is.
std::string why_undecided(const PlannedRun& run, ValueId value);

struct Counterfactual {
  std::string impossible;  // why it cannot be; then nothing else is said
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_bytes = 0;
  bool fits = false;
  std::uint64_t missing_bytes = 0;  // of the device budget
  double step_seconds = 0;
};

// The plan in force.
Counterfactual as_planned(const PlannedRun& run);
// The same decisions, their schedule made anew as it is for those below: addresses, where they were planned,
// are looked for in what the budget leaves. Absent where that comes to the plan in force; else so much of a
// difference is not the decision's.
std::optional<Counterfactual> remade(const PlannedRun& run);
// With that decision of that value, for which there must be something to decide, for the time between its
// last use in the forward pass and its first after that, and with nothing else decided for it. What is
// offloaded leaves when it is made, is released after its last use in the forward pass, and is fetched when a
// copy on a free link takes as long as the ops up to the first that needs it. What is recomputed comes back
// for the first op that needs it, or sooner, where others are made again from it, if that is better.
Counterfactual decided_otherwise(const PlannedRun& run, ValueId value, ValueDecision decision);
// With that algorithm of that op, an index into Op::algorithms.
Counterfactual computed_otherwise(const PlannedRun& run, OpId op, std::uint32_t algorithm);

}  // namespace vdnn
