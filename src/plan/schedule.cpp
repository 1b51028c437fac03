#include "vdnn/schedule.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "src/plan/lowering.h"
#include "src/plan/placement.h"
#include "src/plan/residency.h"
#include "src/plan/waits.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

std::string to_string(StreamRole role) {
  constexpr std::array<const char*, kStreamRoles> kNames{"compute", "offload", "prefetch", "load", "reduce"};
  return kNames[static_cast<std::size_t>(role)];
}

std::string to_string(InstructionKind kind) {
  constexpr std::array<const char*, 8> kNames{"allocate", "release",  "load",        "launch",
                                              "offload",  "prefetch", "read_result", "recompute"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<BufferUse> uses(const Tape& tape, const Instruction& instruction) {
  const ValueId value = instruction.value;
  const BufferId buffer = instruction.buffer;
  switch (instruction.kind) {
    case InstructionKind::kAllocate:
    case InstructionKind::kRelease:
      return {};
    case InstructionKind::kLoad:
      return {{.buffer = buffer, .value = value, .write = true}};
    case InstructionKind::kOffload:
      return {{.buffer = buffer, .value = value, .write = false},
              {.buffer = instruction.host_buffer, .value = value, .write = true}};
    case InstructionKind::kPrefetch:
      return {{.buffer = instruction.host_buffer, .value = value, .write = false},
              {.buffer = buffer, .value = value, .write = true}};
    case InstructionKind::kReadResult:
      return {{.buffer = buffer, .value = value, .write = false}};
    case InstructionKind::kLaunch:
    case InstructionKind::kRecompute:
      break;
  }
  const Op& op = tape.op(instruction.op);
  std::vector<BufferUse> result;
  std::size_t operand = 0;
  for (const ValueId read : op.reads) {
    result.push_back({.buffer = instruction.operands[operand++], .value = read, .write = false});
  }
  for (const ValueId write : op.writes) {
    result.push_back({.buffer = instruction.operands[operand++], .value = write, .write = true});
  }
  if (instruction.operands[operand] != kNone) {
    result.push_back({.buffer = instruction.operands[operand], .value = kNone, .write = true});
  }
  return result;
}

namespace {

// A stretch of a foreign program's step (learned_step.h)?
bool is_foreign(const OpSpec& spec) {
  const auto* const custom = std::get_if<CustomSpec>(&spec);
  return custom != nullptr && !custom->layer;
}

}  // namespace

bool may_run_again(const Tape& tape, OpId id) {
  const Op& op = tape.op(id);
  return op.phase == Phase::kForward && !op.collective() && !is_foreign(op.spec) &&
         std::ranges::none_of(op.writes, [&](ValueId value) { return tape.value(value).persistent(); });
}

Schedule make_schedule(const Tape& tape, const Plan& plan) {
  Schedule schedule = plan.network_wide ? lower_network_wide(tape, plan) : lower_layer_wise(tape, plan);
  if (plan.placement_alignment > 0) {
    place_buffers(schedule, plan.placement_alignment, 0);
  }
  derive_waits(tape, schedule);
  return schedule;
}

std::uint64_t offload_bytes(const Tape& tape, const Schedule& schedule) {
  std::uint64_t sum = 0;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind == InstructionKind::kOffload) {
      sum = checked_add(sum, tape.value(instruction.value).bytes);
    }
  }
  return sum;
}

std::size_t recomputed_ops(const Schedule& schedule) {
  return static_cast<std::size_t>(
      std::ranges::count(schedule.instructions, InstructionKind::kRecompute, &Instruction::kind));
}

std::string_view last_launch(const Tape& tape, const Schedule& schedule) {
  const auto last = std::find_if(schedule.instructions.rbegin(), schedule.instructions.rend(),
                                 [](const Instruction& each) { return is_launch(each.kind); });
  return last == schedule.instructions.rend() ? std::string_view() : tape.op(last->op).name;
}

OpId fullest_op(const Tape& tape, const Schedule& schedule) {
  const std::uint32_t launch = fullest_launch(schedule, bytes_in_use(schedule));
  const OpId op = launch == kNone ? kNone : schedule.instructions[launch].op;
  return op < tape.ops().size() ? op : 0;
}

std::string describe(const Tape& tape, const Instruction& instruction) {
  std::string text = to_string(instruction.kind);
  if (instruction.op < tape.ops().size()) {
    text += " " + tape.op(instruction.op).name;
  }
  if (instruction.value < tape.values().size()) {
    text += " " + tape.value(instruction.value).name;
  }
  return text;
}

std::string trace_name(const Tape& tape, const Instruction& instruction) {
  return instruction.kind == InstructionKind::kLaunch ? tape.op(instruction.op).name
                                                      : describe(tape, instruction);
}

void print(std::ostream& out, const Tape& tape, const Schedule& schedule) {
  for (std::size_t index = 0; index < schedule.instructions.size(); ++index) {
    const Instruction& instruction = schedule.instructions[index];
    out << index << ": [" << to_string(instruction.stream) << "] " << describe(tape, instruction);
    if (instruction.buffer != kNone) {
      const Buffer& buffer = schedule.buffers[instruction.buffer];
      out << " #" << instruction.buffer << " '" << buffer.name << "' " << buffer.bytes << " bytes";
      if (buffer.offset) {
        out << " at " << *buffer.offset;
      }
    }
    for (const Wait& wait : instruction.waits) {
      out << (wait.steps_ago > 0 ? " after previous " : " after ") << wait.instruction;
    }
    out << '\n';
  }
}

}  // namespace vdnn
