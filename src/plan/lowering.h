#pragma once
// From a plan to a list of instructions, without addresses and waits. Two ways of lowering, of which a plan
// takes one; what they share stands here.

#include <string>
#include <utility>
#include <vector>

#include "src/plan/overwrite.h"
#include "vdnn/error.h"
#include "vdnn/schedule.h"

namespace vdnn {

// May the op be launched more than once a step, with the same results? Those of the forward pass may, which
// change nothing that outlives the step and are not a foreign program's.
bool may_run_again(const Tape& tape, OpId id);

// What both ways of lowering share: buffers, instructions, and where each value lies at the moment.
class Lowering {
 public:
  Lowering(const Tape& tape, const Plan& plan) : tape_(tape), plan_(plan) {
    if (plan.algorithms.size() != tape.ops().size()) {
      throw InvalidArgument("the plan has " + std::to_string(plan.algorithms.size()) + " ops, the tape of '" +
                            tape.model() + "' has " + std::to_string(tape.ops().size()));
    }
    schedule_.algorithms = plan.algorithms;
    location_.assign(tape.values().size(), kNone);
  }

 protected:
  BufferId add_buffer(std::string name, std::uint64_t bytes, Space space, bool persistent) {
    schedule_.buffers.push_back(
        {.name = std::move(name), .bytes = bytes, .space = space, .persistent = persistent});
    return static_cast<BufferId>(schedule_.buffers.size() - 1);
  }

  void place_persistent_values() {
    for (ValueId id = 0; id < tape_.values().size(); ++id) {
      // A parameter that is read by its copy alone, as in evaluation, is none of this schedule's.
      if (tape_.value(id).persistent() && tape_.last_use(id) != kNone) {
        place_persistent(id);
      }
    }
  }

  void place_persistent(ValueId id) {
    location_[id] = add_buffer(tape_.value(id).name, tape_.value(id).bytes, Space::kDevice, true);
  }

  void emit(Instruction instruction) { schedule_.instructions.push_back(std::move(instruction)); }

  // Finds a place for each value that the op writes: the memory of a read where overwriting is granted, else
  // what `place` does about it.
  template <class Place>
  void place_writes(OpId id, const Place& place) {
    const Op& op = tape_.op(id);
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const ValueId value = op.writes[write];
      if (tape_.value(value).persistent()) {
        continue;
      }
      if (const auto read = overwritten_read(tape_, id, write)) {
        location_[value] = location_[op.reads[*read]];
      } else {
        place(value);
      }
    }
  }

  std::uint64_t workspace_of(OpId id) const {
    return tape_.op(id).algorithms[plan_.algorithms[id]].workspace_bytes;
  }

  void emit_launch(OpId id, BufferId workspace) {
    const Op& op = tape_.op(id);
    Instruction launch{.kind = InstructionKind::kLaunch,
                       .stream = op.collective() ? StreamRole::kReduce : StreamRole::kCompute,
                       .op = id};
    for (const ValueId value : op.reads) {
      if (location_[value] == kNone) {
        throw InvalidArgument("the plan leaves " + op.name + " without " + tape_.value(value).name);
      }
      launch.operands.push_back(location_[value]);
    }
    for (const ValueId value : op.writes) {
      launch.operands.push_back(location_[value]);
    }
    launch.operands.push_back(workspace);
    emit(std::move(launch));
  }

  void emit_load(ValueId id) {
    emit({.kind = InstructionKind::kLoad, .stream = StreamRole::kLoad, .value = id, .buffer = location_[id]});
  }

  // Results leave as soon as they are made: a later op may overwrite them.
  void emit_read_results(OpId id) {
    for (const ValueId result : tape_.results()) {
      if (tape_.producer(result) == id) {
        emit({.kind = InstructionKind::kReadResult,
              .stream = StreamRole::kOffload,
              .value = result,
              .buffer = location_[result]});
      }
    }
  }

  Schedule finish() { return std::move(schedule_); }

  const Tape& tape_;
  const Plan& plan_;
  Schedule schedule_;
  std::vector<BufferId> location_;  // a value: the buffer that holds it now
};

// Layer-wise: a value has memory in each of its lives (plan.h).
// `first_instructions`, where it is not null: of each op, then of the end.
Schedule lower_layer_wise(const Tape& tape, const Plan& plan,
                          std::vector<std::uint32_t>* first_instructions = nullptr);
// Network-wide, in Torch's manner (policy `baseline`).
Schedule lower_network_wide(const Tape& tape, const Plan& plan);

}  // namespace vdnn
