#include "vdnn/schedule.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <vector>

#include "src/plan/placement.h"
#include "src/plan/residency.h"
#include "src/plan/schedule_builder.h"
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

namespace {

[[noreturn]] void reject(const Instruction& instruction, const char* wanted) {
  throw InvalidArgument("an instruction of kind " + to_string(instruction.kind) + " has no " + wanted);
}

}  // namespace

OpId Instruction::launched_op() const {
  if (!is_launch(kind)) {
    reject(*this, "op");
  }
  return op;
}

BufferId Instruction::workspace() const {
  if (!is_launch(kind) || operands.empty()) {
    reject(*this, "workspace");
  }
  return operands.back();
}

BufferCopy Instruction::copy() const {
  switch (kind) {
    case InstructionKind::kOffload:
      return {.value = value, .from = buffer, .to = host_buffer};
    case InstructionKind::kPrefetch:
      return {.value = value, .from = host_buffer, .to = buffer};
    default:
      reject(*this, "two buffers to copy between");
  }
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
    case InstructionKind::kPrefetch:
      return {{.buffer = instruction.copy().from, .value = value, .write = false},
              {.buffer = instruction.copy().to, .value = value, .write = true}};
    case InstructionKind::kReadResult:
      return {{.buffer = buffer, .value = value, .write = false}};
    case InstructionKind::kLaunch:
    case InstructionKind::kRecompute:
      break;
  }
  const Op& op = tape.op(instruction.launched_op());
  std::vector<BufferUse> result;
  std::size_t operand = 0;
  for (const ValueId read : op.reads) {
    result.push_back({.buffer = instruction.operands[operand++], .value = read, .write = false});
  }
  for (const ValueId write : op.writes) {
    result.push_back({.buffer = instruction.operands[operand++], .value = write, .write = true});
  }
  if (instruction.workspace() != kNone) {
    result.push_back({.buffer = instruction.workspace(), .value = kNone, .write = true});
  }
  return result;
}

Schedule make_schedule(const Tape& tape, const Plan& plan) {
  Schedule schedule =
      plan.network_wide ? build_network_wide_schedule(tape, plan) : build_layer_wise_schedule(tape, plan);
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
  return last == schedule.instructions.rend() ? std::string_view() : tape.op(last->launched_op()).name;
}

OpId fullest_op(const Tape& tape, const Schedule& schedule) {
  const std::uint32_t launch = fullest_launch(schedule, bytes_in_use(schedule));
  const OpId op = launch == kNone ? kNone : schedule.instructions[launch].launched_op();
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
  return instruction.kind == InstructionKind::kLaunch ? tape.op(instruction.launched_op()).name
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
