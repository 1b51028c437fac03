#pragma once
// What if one decision of a plan were another one? Answered by making the schedule anew and running it on the
// `sim` driver, as the plan's own was predicted.

#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/planned_run.h"

namespace vdnn {

// What becomes of a value between its last use in the forward pass and its first in the backward pass.
enum class ValueDecision : std::uint8_t {
  kUndecided,  // nothing: it is not made in the forward pass for the backward pass, or not by itself
  kKept,
  kOffloaded,
  kRecomputed
};
std::string to_string(ValueDecision decision);

// Of the plan of a run.
ValueDecision decision_of(const PlannedRun& run, ValueId value);
// Why there is nothing to decide; empty where there is.
std::string why_undecided(const PlannedRun& run, ValueId value);

struct Counterfactual {
  std::string impossible;  // why it cannot be; then nothing else is said
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_bytes = 0;
  bool fits = false;
  std::uint64_t missing_bytes = 0;  // of the device budget
  double step_seconds = 0;
};

// With the plan as it is: what the others are to be compared to. Where addresses were planned (`optimal`),
// they are planned anew each time, so that the last digits may differ from the run's own prediction.
Counterfactual as_planned(const PlannedRun& run);
// With that decision of that value, for which there must be something to decide. What is offloaded leaves
// when it is made, is released after its last use in the forward pass, and is fetched when a copy on a free
// link takes as long as the ops up to the first that needs it.
Counterfactual decided_otherwise(const PlannedRun& run, ValueId value, ValueDecision decision);
// With that algorithm of that op, an index into Op::algorithms.
Counterfactual computed_otherwise(const PlannedRun& run, OpId op, std::uint32_t algorithm);

}  // namespace vdnn
