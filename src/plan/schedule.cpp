#include "vdnn/schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "src/plan/overwrite.h"
#include "src/plan/waits.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

std::string to_string(StreamRole role) {
  constexpr std::array<const char*, kStreamRoles> kNames{"compute", "offload", "prefetch", "load"};
  return kNames[static_cast<std::size_t>(role)];
}

std::string to_string(InstructionKind kind) {
  constexpr std::array<const char*, 7> kNames{"allocate", "release",  "load",       "launch",
                                              "offload",  "prefetch", "read_result"};
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
      if (tape_.value(id).persistent()) {
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
    Instruction launch{.kind = InstructionKind::kLaunch, .stream = StreamRole::kCompute, .op = id};
    for (const ValueId value : op.reads) {
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

  Schedule finish() {
    derive_waits(tape_, schedule_);
    return std::move(schedule_);
  }

  const Tape& tape_;
  const Plan& plan_;
  Schedule schedule_;
  std::vector<BufferId> location_;  // a value: the buffer that holds it now
};

// Layer-wise: a value has memory from the op that makes it to the last that uses it, less the time that it
// spends on the host.
class LayerWiseLowering : public Lowering {
 public:
  LayerWiseLowering(const Tape& tape, const Plan& plan) : Lowering(tape, plan) {
    std::vector<const Transfer*> by_need;
    for (const Transfer& transfer : plan.transfers) {
      offloads_.emplace(transfer.offload_with, &transfer);
      by_need.push_back(&transfer);
    }
    // A demand fetch must not queue behind what is fetched ahead.
    std::ranges::stable_sort(by_need, {}, [&](const Transfer* transfer) { return needed_by(*transfer); });
    for (const Transfer* transfer : by_need) {
      prefetches_.emplace(transfer->prefetch_with, transfer);
    }
  }

  Schedule run() {
    place_persistent_values();
    for (const ValueId input : tape_.inputs()) {
      allocate_value(input, StreamRole::kLoad);
      emit_load(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      lower(id);
    }
    return finish();
  }

 private:
  // The first op that reads what comes back.
  OpId needed_by(const Transfer& transfer) const {
    const std::span<const OpId> readers = tape_.readers(transfer.value);
    const auto found = std::ranges::lower_bound(readers, transfer.prefetch_with);
    return found == readers.end() ? kNone : *found;
  }

  BufferId allocate(std::string name, std::uint64_t bytes, Space space, StreamRole stream) {
    const BufferId buffer = add_buffer(std::move(name), bytes, space, false);
    emit({.kind = InstructionKind::kAllocate, .stream = stream, .buffer = buffer});
    return buffer;
  }

  void allocate_value(ValueId id, StreamRole stream) {
    location_[id] = allocate(tape_.value(id).name, tape_.value(id).bytes, Space::kDevice, stream);
  }

  void release(BufferId buffer, StreamRole stream) {
    emit({.kind = InstructionKind::kRelease, .stream = stream, .buffer = buffer});
  }

  void lower(OpId id) {
    const auto fetched = prefetches_.equal_range(id);
    for (auto it = fetched.first; it != fetched.second; ++it) {
      prefetch(*it->second);
    }
    // The copy starts beside the op: what it reads has been ready since its producer.
    const auto offloaded = offloads_.equal_range(id);
    for (auto it = offloaded.first; it != offloaded.second; ++it) {
      if (tape_.producer(it->second->value) != id) {
        offload(*it->second);
      }
    }
    launch(id);
    emit_read_results(id);
    for (auto it = offloaded.first; it != offloaded.second; ++it) {
      if (tape_.producer(it->second->value) == id) {
        offload(*it->second);
      }
      release(location_[it->second->value], StreamRole::kOffload);
      location_[it->second->value] = kNone;
    }
    release_dead(id);
  }

  void offload(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const BufferId host = allocate(value.name + " (host)", value.bytes, Space::kHost, StreamRole::kOffload);
    host_[transfer.value] = host;
    emit({.kind = InstructionKind::kOffload,
          .stream = StreamRole::kOffload,
          .value = transfer.value,
          .buffer = location_[transfer.value],
          .host_buffer = host});
  }

  void prefetch(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const BufferId buffer =
        allocate(value.name + " (prefetched)", value.bytes, Space::kDevice, StreamRole::kPrefetch);
    location_[transfer.value] = buffer;
    emit({.kind = InstructionKind::kPrefetch,
          .stream = StreamRole::kPrefetch,
          .value = transfer.value,
          .buffer = buffer,
          .host_buffer = host_.at(transfer.value)});
    release(host_.at(transfer.value), StreamRole::kPrefetch);
  }

  void launch(OpId id) {
    place_writes(id, [this](ValueId value) { allocate_value(value, StreamRole::kCompute); });
    BufferId workspace = kNone;
    if (workspace_of(id) > 0) {
      workspace =
          allocate(tape_.op(id).name + ".workspace", workspace_of(id), Space::kDevice, StreamRole::kCompute);
    }
    emit_launch(id, workspace);
    if (workspace != kNone) {
      release(workspace, StreamRole::kCompute);
    }
  }

  // Releases what this op used last, unless its memory has been taken over by a value that lives on.
  void release_dead(OpId id) {
    const Op& op = tape_.op(id);
    for (std::uint32_t read = 0; read < op.reads.size(); ++read) {
      release_if_dead(op.reads[read], id, is_taken_over(id, op.reads[read]));
    }
    for (const ValueId value : op.writes) {
      release_if_dead(value, id, false);
    }
  }

  bool is_taken_over(OpId id, ValueId value) const {
    const Op& op = tape_.op(id);
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const auto read = overwritten_read(tape_, id, write);
      if (read && op.reads[*read] == value) {
        return true;
      }
    }
    return false;
  }

  void release_if_dead(ValueId value, OpId id, bool taken_over) {
    if (tape_.value(value).persistent() || tape_.last_use(value) != id || location_[value] == kNone) {
      return;
    }
    if (!taken_over) {
      release(location_[value], StreamRole::kCompute);
    }
    location_[value] = kNone;
  }

  std::multimap<OpId, const Transfer*> offloads_;
  std::multimap<OpId, const Transfer*> prefetches_;
  std::map<ValueId, BufferId> host_;
};

// Network-wide, in Torch's manner: everything at once and for good, but for the gradient maps, which take
// turns in as few buffers of the largest size as are live at once (at least two), and the workspace, which is
// shared.
class NetworkWideLowering : public Lowering {
 public:
  using Lowering::Lowering;

  Schedule run() {
    place_persistent_values();
    for (const ValueId input : tape_.inputs()) {
      place_persistent(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      place(id);
    }
    while (gradient_buffers_.size() < 2) {
      add_gradient_buffer();
    }
    const std::uint64_t largest_workspace = workspace_bytes(tape_, plan_);
    if (largest_workspace > 0) {
      workspace_ = add_buffer("workspace", largest_workspace, Space::kDevice, true);
    }
    for (const ValueId input : tape_.inputs()) {
      emit_load(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      emit_launch(id, workspace_of(id) > 0 ? workspace_ : kNone);
      emit_read_results(id);
    }
    return finish();
  }

 private:
  void place(OpId id) {
    place_writes(id, [this, id](ValueId value) {
      if (tape_.value(value).kind == ValueKind::kGradientMap) {
        location_[value] = free_gradient_buffer(id);
        holders_[location_[value]] = value;  // the op's next write must not take it
      } else {
        place_persistent(value);
      }
    });
    for (const ValueId value : tape_.op(id).writes) {
      holders_[location_[value]] = value;
    }
  }

  BufferId free_gradient_buffer(OpId id) {
    for (const BufferId buffer : gradient_buffers_) {
      const auto holder = holders_.find(buffer);
      if (holder == holders_.end() || tape_.last_use(holder->second) < id) {
        return buffer;
      }
    }
    return add_gradient_buffer();
  }

  BufferId add_gradient_buffer() {
    std::uint64_t largest = 1;
    for (const Value& value : tape_.values()) {
      if (value.kind == ValueKind::kGradientMap) {
        largest = std::max(largest, value.bytes);
      }
    }
    const auto number = std::to_string(gradient_buffers_.size());
    gradient_buffers_.push_back(add_buffer("gradient maps " + number, largest, Space::kDevice, true));
    return gradient_buffers_.back();
  }

  std::vector<BufferId> gradient_buffers_;
  std::map<BufferId, ValueId> holders_;  // the value that was placed there last
  BufferId workspace_ = kNone;
};

}  // namespace

Schedule make_schedule(const Tape& tape, const Plan& plan) {
  return plan.network_wide ? NetworkWideLowering(tape, plan).run() : LayerWiseLowering(tape, plan).run();
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

void print(std::ostream& out, const Tape& tape, const Schedule& schedule) {
  for (std::size_t index = 0; index < schedule.instructions.size(); ++index) {
    const Instruction& instruction = schedule.instructions[index];
    out << index << ": [" << to_string(instruction.stream) << "] " << describe(tape, instruction);
    if (instruction.buffer != kNone) {
      const Buffer& buffer = schedule.buffers[instruction.buffer];
      out << " #" << instruction.buffer << " '" << buffer.name << "' " << buffer.bytes << " bytes";
    }
    for (const Wait& wait : instruction.waits) {
      out << (wait.steps_ago > 0 ? " after previous " : " after ") << wait.instruction;
    }
    out << '\n';
  }
}

}  // namespace vdnn
