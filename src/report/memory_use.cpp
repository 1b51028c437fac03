#include "src/report/memory_use.h"

#include <algorithm>
#include <array>
#include <functional>

#include "src/plan/overwrite.h"
#include "src/plan/residency.h"
#include "vdnn/size.h"

namespace vdnn {

std::string to_string(Reason reason) {
  constexpr std::array<const char*, 9> kNames{"parameter", "optimizer state", "allocated for good",
                                              "operand",   "workspace",       "needed",
                                              "fetched",   "leaving",         "unused"};
  return kNames[static_cast<std::size_t>(reason)];
}

namespace {

class Moment {
 public:
  // The memory in use at instruction `when`. `launch`: the launch to which that instruction belongs.
  Moment(const Tape& tape, const Schedule& schedule, std::uint32_t when, std::uint32_t launch)
      : tape_(tape),
        schedule_(schedule),
        when_(when),
        launch_(launch),
        next_op_(schedule.buffers.size(), kNone),
        offloaded_(tape.values().size(), false) {
    find_what_follows();
  }

  MemoryUse look(std::uint64_t alignment_bytes) const {
    MemoryUse use{.launch = launch_, .occupants = {}};
    for (const Residence& residence : residences(tape_, schedule_)) {
      if (residence.present(when_)) {
        use.occupants.push_back(occupant(residence));
        use.bytes += use.occupants.back().bytes;
        use.aligned_bytes += round_up(use.occupants.back().bytes, alignment_bytes);
      }
    }
    std::ranges::stable_sort(use.occupants, std::ranges::greater{}, &Occupant::bytes);
    return use;
  }

 private:
  Occupant occupant(const Residence& residence) const {
    const Buffer& buffer = schedule_.buffers[residence.buffer];
    const ValueId value = residence.value_at(launch_);
    Occupant result{.value = value,
                    .name = value == kNone ? buffer.name : tape_.value(value).name,
                    .bytes = buffer.bytes};
    if (value != kNone && tape_.value(value).persistent()) {
      const ValueKind kind = tape_.value(value).kind;
      result.reason = kind == ValueKind::kParameter || kind == ValueKind::kParameterCopy ? Reason::kParameter
                      : kind == ValueKind::kOptimizerState ? Reason::kOptimizerState
                                                           : Reason::kForGood;
      return result;
    }
    result.needed_by = next_op_[residence.buffer];
    result.reason = reason(residence);
    return result;
  }

  Reason reason(const Residence& residence) const {
    if (is_operand(residence.buffer)) {
      return residence.value_at(launch_) == kNone ? Reason::kWorkspace : Reason::kOperand;
    }
    if (schedule_.buffers[residence.buffer].persistent) {
      return Reason::kForGood;
    }
    if (next_op_[residence.buffer] != kNone) {
      return was_fetched(residence) ? Reason::kFetched : Reason::kNeeded;
    }
    const ValueId value = residence.value_at(launch_);
    return value != kNone && offloaded_[value] ? Reason::kLeaving : Reason::kUnused;
  }

  bool is_operand(BufferId buffer) const {
    const std::vector<BufferId>& operands = schedule_.instructions[launch_].operands;
    return std::ranges::find(operands, buffer) != operands.end();
  }

  bool was_fetched(const Residence& residence) const {
    return !residence.holdings.empty() &&
           schedule_.instructions[residence.holdings.front().first].kind == InstructionKind::kPrefetch;
  }
  void find_what_follows() {
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      const Instruction& instruction = schedule_.instructions[index];
      if (instruction.kind == InstructionKind::kOffload) {
        offloaded_[instruction.value] = true;
      }
      if (is_launch(instruction.kind) && index > launch_) {
        for (const BufferId operand : instruction.operands) {
          if (operand != kNone && next_op_[operand] == kNone) {
            next_op_[operand] = instruction.launched_op();
          }
        }
      }
    }
  }

  const Tape& tape_;
  const Schedule& schedule_;
  std::uint32_t when_;
  std::uint32_t launch_;
  std::vector<OpId> next_op_;    // by buffer: the next op that uses it after this launch; kNone: none
  std::vector<bool> offloaded_;  // by value
};

}  // namespace

MemoryUse fullest_moment(const Tape& tape, const Schedule& schedule, std::uint64_t alignment_bytes) {
  const std::vector<std::uint64_t> bytes = bytes_in_use(schedule);
  const std::uint32_t launch = fullest_launch(schedule, bytes);
  if (launch == kNone) {
    return {.occupants = {}};
  }
  const auto when = static_cast<std::uint32_t>(std::ranges::max_element(bytes) - bytes.begin());
  return Moment(tape, schedule, when, launch).look(alignment_bytes);
}

MemoryUse memory_at(const Tape& tape, const Schedule& schedule, std::uint32_t launch,
                    std::uint64_t alignment_bytes) {
  return Moment(tape, schedule, launch, launch).look(alignment_bytes);
}

namespace {

std::uint64_t least_workspace(const Op& op, const PlanOptions& options) {
  if (const auto recorded = options.recorded.find(op.name); recorded != options.recorded.end()) {
    return std::ranges::find(op.algorithms, recorded->second, &Algorithm::name)->workspace_bytes;
  }
  return std::ranges::min_element(op.algorithms, {}, &Algorithm::workspace_bytes)->workspace_bytes;
}

std::uint64_t persistent_bytes(const Tape& tape) {
  std::uint64_t sum = 0;
  for (const Value& value : tape.values()) {
    sum += value.persistent() ? value.bytes : 0;
  }
  return sum;
}

std::uint64_t operand_bytes(const Tape& tape, OpId id) {
  const Op& op = tape.op(id);
  std::vector<ValueId> operands = op.reads;
  for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
    if (!overwritten_read(tape, id, write)) {
      operands.push_back(op.writes[write]);
    }
  }
  std::ranges::sort(operands);
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  std::uint64_t sum = 0;
  for (const ValueId operand : operands) {
    sum += tape.value(operand).persistent() ? 0 : tape.value(operand).bytes;
  }
  return sum;
}

}  // namespace

Irreducible irreducible_at(const Tape& tape, const PlanOptions& options, OpId op) {
  return {.op = op,
          .persistent_bytes = persistent_bytes(tape),
          .operand_bytes = operand_bytes(tape, op),
          .workspace_bytes = least_workspace(tape.op(op), options)};
}

Irreducible most_irreducible(const Tape& tape, const PlanOptions& options) {
  Irreducible most{.persistent_bytes = persistent_bytes(tape)};
  for (OpId op = 0; op < tape.ops().size(); ++op) {
    const std::uint64_t bytes = operand_bytes(tape, op) + least_workspace(tape.op(op), options);
    if (most.op == kNone || bytes > most.operand_bytes + most.workspace_bytes) {
      most = {.op = op,
              .persistent_bytes = most.persistent_bytes,
              .operand_bytes = operand_bytes(tape, op),
              .workspace_bytes = bytes - operand_bytes(tape, op)};
    }
  }
  return most;
}

}  // namespace vdnn
