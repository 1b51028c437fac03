#include "src/plan/checker/step_tally.h"

#include <string>

namespace vdnn::checking {

void StepTally::count(const Instruction& instruction) {
  if (instruction.kind == InstructionKind::kLaunch) {
    ++launches_[instruction.op];
  } else if (instruction.kind == InstructionKind::kLoad) {
    ++loads_[instruction.value];
  } else if (instruction.kind == InstructionKind::kReadResult) {
    ++reads_of_results_[instruction.value];
  }
}

void StepTally::check(std::uint32_t step, Findings& findings) const {
  const auto require_once = [&](const std::string& name, const char* done, int times) {
    if (times != 1) {
      findings.add(name + " is " + done + " " + std::to_string(times) + " times in step " +
                   std::to_string(step));
    }
  };
  for (OpId id = 0; id < tape_.ops().size(); ++id) {
    require_once(tape_.op(id).name, "launched", launches_[id]);
  }
  for (const ValueId input : tape_.inputs()) {
    require_once(tape_.value(input).name, "loaded", loads_[input]);
  }
  for (const ValueId result : tape_.results()) {
    require_once(tape_.value(result).name, "read by the host", reads_of_results_[result]);
  }
}

}  // namespace vdnn::checking
