#include "bench/allocations_of_step.h"

#include <set>
#include <vector>

namespace vdnn::bench {

namespace {

class Log {
 public:
  explicit Log(const Schedule& schedule) : schedule_(schedule), blocks_(schedule.buffers.size()) {}

  AllocationLog of_steps() {
    for (BufferId buffer = 0; buffer < schedule_.buffers.size(); ++buffer) {
      if (schedule_.buffers[buffer].persistent) {
        allocate(buffer, StreamRole::kCompute);
      }
    }
    log_.step_begin = log_.events.size();
    for (const Instruction& instruction : schedule_.instructions) {
      if (instruction.kind == InstructionKind::kAllocate) {
        allocate(instruction.buffer, instruction.stream);
      } else if (instruction.kind == InstructionKind::kRelease) {
        release(instruction);
      }
    }
    return std::move(log_);
  }

 private:
  struct Block {
    std::uint64_t number = 0;
    StreamRole stream = StreamRole::kCompute;
  };

  bool on_device(BufferId buffer) const { return schedule_.buffers[buffer].space == Space::kDevice; }
  void add(AllocationEvent event, StreamRole stream) {
    event.stream = static_cast<std::uint32_t>(stream);
    log_.events.push_back(event);
  }

  void allocate(BufferId buffer, StreamRole stream) {
    if (on_device(buffer)) {
      blocks_[buffer] = {.number = next_, .stream = stream};
      add({.lasting = schedule_.buffers[buffer].persistent,
           .block = next_++,
           .bytes = schedule_.buffers[buffer].bytes},
          stream);
    }
  }

  // Frees the block on one of the streams of its last uses, the one with the smallest StreamRole, and records
  // uses on the others.
  void release(const Instruction& release) {
    if (!on_device(release.buffer)) {
      return;
    }
    const Block& block = blocks_[release.buffer];
    std::set<StreamRole> users;
    for (const Wait& wait : release.waits) {
      users.insert(schedule_.instructions[wait.instruction].stream);
    }
    const StreamRole last = users.empty() ? block.stream : *users.begin();
    users.erase(last);
    for (const StreamRole user : users) {
      add({.kind = AllocationEvent::Kind::kUse, .block = block.number}, user);
    }
    add({.kind = AllocationEvent::Kind::kFree, .block = block.number}, last);
  }

  const Schedule& schedule_;
  std::vector<Block> blocks_;  // by buffer
  std::uint64_t next_ = 0;
  AllocationLog log_;
};

}  // namespace

AllocationLog allocations_of_step(const Schedule& schedule) {
  return Log(schedule).of_steps();
}

}  // namespace vdnn::bench
