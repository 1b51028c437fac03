#pragma once
// Turns a plan into the instructions of its schedule, without addresses and waits. There are two ways to
// place values, layer-wise and network-wide. The builders for both derive from ScheduleBuilder.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/overwrite.h"
#include "vdnn/error.h"
#include "vdnn/schedule.h"

namespace vdnn {

// The buffers and instructions so far, and the current buffer of each value.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const Tape& tape, const Plan& plan) : tape_(tape), plan_(plan) {
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
      // In evaluation it is possible that ops read only the narrow copy of a parameter. The schedule then has
      // no buffer for the parameter itself.
      if (tape_.value(id).persistent() && tape_.last_use(id) != kNone) {
        place_persistent(id);
      }
    }
  }

  void place_persistent(ValueId id) {
    location_[id] = add_buffer(tape_.value(id).name, tape_.value(id).bytes, Space::kDevice, true);
  }

  void emit(Instruction instruction) { schedule_.instructions.push_back(std::move(instruction)); }

  // Places each value that the op writes: in the memory of an operand if the value overwrites that operand,
  // otherwise by `place(value)`.
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

  // The host reads results as soon as they are made, since a later op may overwrite them.
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
  std::vector<BufferId> location_;  // by value: its current buffer
};

// Both functions throw InvalidArgument for a plan that cannot be carried out (plan.h).
//
// Layer-wise: a value has memory only during its lives (plan.h). If `first_instructions` is not null, it
// receives the index of each op's first instruction, and at its end the number of instructions.
Schedule build_layer_wise_schedule(const Tape& tape, const Plan& plan,
                                   std::vector<std::uint32_t>* first_instructions = nullptr);
// Network-wide, like Torch (policy `baseline`).
Schedule build_network_wide_schedule(const Tape& tape, const Plan& plan);

}  // namespace vdnn
