#include "src/report/value_decision.h"

#include <algorithm>
#include <array>

namespace vdnn {

std::string to_string(ValueDecision decision) {
  constexpr std::array<const char*, 5> kNames{"undecided", "dropped", "kept", "offloaded", "recomputed"};
  return kNames[static_cast<std::size_t>(decision)];
}

bool is_made_in_forward(const Tape& tape, ValueId value) {
  const OpId producer = tape.producer(value);
  return tape.value(value).loaded() || (producer != kNone && tape.op(producer).phase == Phase::kForward);
}

namespace {

bool follows_forward(const Tape& tape, const Instruction& instruction) {
  return instruction.kind == InstructionKind::kRecompute ||
         (instruction.kind == InstructionKind::kLaunch &&
          tape.op(instruction.launched_op()).phase != Phase::kForward);
}

}  // namespace

std::vector<ValueDecision> decisions_of(const Tape& tape, const Schedule& schedule) {
  std::vector<ValueDecision> decisions(tape.values().size(), ValueDecision::kUndecided);
  for (ValueId value = 0; value < decisions.size(); ++value) {
    if (!tape.value(value).persistent() && is_made_in_forward(tape, value)) {
      decisions[value] = ValueDecision::kDropped;
    }
  }
  const auto note = [&](ValueId value, ValueDecision decision) {
    if (value != kNone && decisions[value] != ValueDecision::kUndecided &&
        decisions[value] != ValueDecision::kOffloaded) {
      decisions[value] = std::max(decisions[value], decision);
    }
  };
  std::vector<bool> made_again(schedule.buffers.size(), false);  // by buffer: whether its contents were
                                                                 // recomputed
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind == InstructionKind::kOffload) {
      decisions[instruction.value] = ValueDecision::kOffloaded;  // whatever else is done with it
    }
    const bool later = follows_forward(tape, instruction);
    for (const BufferUse& use : uses(tape, instruction)) {
      if (use.write) {
        made_again[use.buffer] = instruction.kind == InstructionKind::kRecompute;
      } else if (later) {
        note(use.value, made_again[use.buffer] ? ValueDecision::kRecomputed : ValueDecision::kKept);
      }
    }
  }
  return decisions;
}

}  // namespace vdnn
