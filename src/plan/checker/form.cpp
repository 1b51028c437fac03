#include "src/plan/checker/form.h"

#include <algorithm>

namespace vdnn::checking {

namespace {

class FormCheck {
 public:
  FormCheck(const Tape& tape, const Schedule& schedule, Findings& findings)
      : tape_(tape), schedule_(schedule), findings_(findings) {}

  bool run() {
    check_algorithms();
    if (!findings_.empty()) {
      return false;  // the operands of a launch depend on its algorithm
    }
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      check_instruction(index);
    }
    if (findings_.empty()) {
      check_persistent_places();
      check_places_in_arena();
    }
    return findings_.empty();
  }

 private:
  void check_algorithms() {
    if (schedule_.algorithms.size() != tape_.ops().size()) {
      findings_.add("the schedule has algorithms for " + std::to_string(schedule_.algorithms.size()) +
                    " ops, the tape has " + std::to_string(tape_.ops().size()));
      return;
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      if (schedule_.algorithms[id] >= tape_.op(id).algorithms.size()) {
        findings_.add(tape_.op(id).name + " has no algorithm " + std::to_string(schedule_.algorithms[id]));
      }
    }
  }

  void check_instruction(std::uint32_t index) {
    const Instruction& instruction = schedule_.instructions[index];
    // On the stream of reductions, other work would delay collectives for which the other ranks wait.
    if (!names_what_exists(instruction) ||
        (instruction.stream == StreamRole::kReduce) != is_collective(instruction)) {
      findings_.add(findings_.name(index) +
                    " is malformed: it names an op, value or buffer that does not exist or is of the wrong "
                    "kind, or is on the wrong stream");
      return;
    }
    for (const Wait& wait : instruction.waits) {
      check_wait(index, wait);
    }
  }

  bool names_what_exists(const Instruction& instruction) const {
    const auto is_value = [&](const auto& holds) {
      return instruction.value < tape_.values().size() && holds(instruction.value);
    };
    switch (instruction.kind) {
      case InstructionKind::kAllocate:
      case InstructionKind::kRelease:
        return instruction.buffer < schedule_.buffers.size();
      case InstructionKind::kLoad:
        return is_value([&](ValueId id) { return tape_.value(id).loaded(); }) &&
               is_buffer(instruction.buffer, Space::kDevice);
      case InstructionKind::kReadResult:
        return is_value([&](ValueId id) { return is_result(id); }) &&
               is_buffer(instruction.buffer, Space::kDevice);
      case InstructionKind::kOffload:
      case InstructionKind::kPrefetch:
        return is_value([&](ValueId id) { return !tape_.value(id).persistent(); }) &&
               is_buffer(instruction.buffer, Space::kDevice) &&
               is_buffer(instruction.host_buffer, Space::kHost);
      case InstructionKind::kLaunch:
      case InstructionKind::kRecompute:
        return launch_has_form(instruction);
    }
    return false;
  }

  bool is_buffer(BufferId id, Space space) const {
    return id < schedule_.buffers.size() && schedule_.buffers[id].space == space;
  }

  bool is_result(ValueId value) const {
    return std::ranges::find(tape_.results(), value) != tape_.results().end();
  }

  bool is_collective(const Instruction& instruction) const {
    return instruction.kind == InstructionKind::kLaunch && tape_.op(instruction.op).collective();
  }

  static bool in_place(const Op& op, const Instruction& instruction) {
    const auto writes = instruction.operands.begin() + static_cast<std::ptrdiff_t>(op.reads.size());
    return op.reads.size() == op.writes.size() &&
           std::equal(instruction.operands.begin(), writes, writes, instruction.operands.end() - 1);
  }

  bool launch_has_form(const Instruction& instruction) const {
    if (instruction.op >= tape_.ops().size()) {
      return false;
    }
    const Op& op = tape_.op(instruction.op);
    const std::size_t values = op.reads.size() + op.writes.size();
    if (instruction.operands.size() != values + 1) {
      return false;
    }
    // Only one stream may compute: a program's ops run on one stream at a time (op_library.h).
    if (!op.collective() && instruction.stream != StreamRole::kCompute) {
      return false;
    }
    // A collective must not be launched again: the other ranks would not take part, so the second launch
    // would wait for ever.
    if (op.collective() && (instruction.kind != InstructionKind::kLaunch || !in_place(op, instruction))) {
      return false;
    }
    const BufferId workspace = instruction.operands.back();
    const bool needs_workspace = op.algorithms[schedule_.algorithms[instruction.op]].workspace_bytes > 0;
    if ((workspace != kNone) != needs_workspace) {
      return false;
    }
    const auto end = instruction.operands.end() - (workspace == kNone ? 1 : 0);
    return std::all_of(instruction.operands.begin(), end,
                       [&](BufferId id) { return is_buffer(id, Space::kDevice); });
  }

  void check_wait(std::uint32_t index, const Wait& wait) {
    const bool earlier = wait.steps_ago == 1 || (wait.steps_ago == 0 && wait.instruction < index);
    if (wait.instruction >= schedule_.instructions.size() || !earlier) {
      findings_.add(findings_.name(index) + " waits for instruction " + std::to_string(wait.instruction) +
                    ", which does not come before it");
    } else if (schedule_.instructions[wait.instruction].kind == InstructionKind::kRelease) {
      findings_.add(findings_.name(index) + " waits for a release, which is no work");
    }
  }

  // A persistent value must have a persistent device buffer to itself. It must never move, because executors
  // bind that buffer to the parameter store.
  void check_persistent_places() {
    std::vector<BufferId> place(tape_.values().size(), kNone);
    std::vector<ValueId> owner(schedule_.buffers.size(), kNone);
    std::vector<bool> shared(schedule_.buffers.size(), false);
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      for (const BufferUse& use : uses(tape_, schedule_.instructions[index])) {
        if (use.value == kNone || !tape_.value(use.value).persistent()) {
          shared[use.buffer] = true;
          continue;
        }
        const Buffer& buffer = schedule_.buffers[use.buffer];
        const bool fits = buffer.persistent && buffer.space == Space::kDevice &&
                          buffer.bytes == tape_.value(use.value).bytes;
        if (!fits || (place[use.value] != kNone && place[use.value] != use.buffer) ||
            (owner[use.buffer] != kNone && owner[use.buffer] != use.value)) {
          findings_.add(findings_.name(index) + " names " + tape_.value(use.value).name + " in " +
                        findings_.buffer_name(use.buffer) + ", which is not its one place");
        }
        place[use.value] = use.buffer;
        owner[use.buffer] = use.value;
      }
    }
    for (BufferId id = 0; id < schedule_.buffers.size(); ++id) {
      if (owner[id] != kNone && shared[id]) {
        findings_.add(findings_.buffer_name(id) + " is the place of " + tape_.value(owner[id]).name +
                      " and holds something else too");
      }
    }
  }

  // The schedule must have offsets for all buffers that it allocates on the device, or for none.
  void check_places_in_arena() {
    for (BufferId id = 0; id < schedule_.buffers.size(); ++id) {
      const Buffer& buffer = schedule_.buffers[id];
      const bool in_arena = schedule_.arena_bytes > 0 && buffer.space == Space::kDevice && !buffer.persistent;
      if (buffer.offset.has_value() != in_arena) {
        findings_.add(findings_.buffer_name(id) +
                      (in_arena ? " has no place in the arena" : " has a place in an arena"));
      } else if (in_arena && (buffer.bytes > schedule_.arena_bytes ||
                              *buffer.offset > schedule_.arena_bytes - buffer.bytes)) {
        findings_.add(findings_.buffer_name(id) + " does not lie inside the arena");
      }
    }
  }

  const Tape& tape_;
  const Schedule& schedule_;
  Findings& findings_;
};

}  // namespace

bool check_form(const Tape& tape, const Schedule& schedule, Findings& findings) {
  return FormCheck(tape, schedule, findings).run();
}

}  // namespace vdnn::checking
