#include "src/plan/waits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/interval_map.h"

namespace vdnn {

namespace {

// The number of an instruction, counted through two steps from 1; 0 means none. The second step shows the
// dependencies on the step before it, and every later step has the same dependencies.
using Position = std::uint64_t;

// By stream: the last instruction that is known to be done.
using Clock = std::array<Position, kStreamRoles>;

void join(Clock& clock, const Clock& other) {
  std::ranges::transform(clock, other, clock.begin(), [](Position a, Position b) { return std::max(a, b); });
}

// The last accesses of a buffer.
struct LastAccesses {
  Position write = 0;
  std::vector<Position> reads;  // the reads since `write`
};

class WaitDeriver {
 public:
  WaitDeriver(const Tape& tape, Schedule& schedule)
      : tape_(tape),
        schedule_(schedule),
        count_(schedule.instructions.size()),
        clocks_(2 * count_ + 1),
        accesses_(schedule.buffers.size()) {}

  void run() {
    for (std::uint32_t step = 0; step < 2; ++step) {
      for (std::uint32_t index = 0; index < count_; ++index) {
        visit(step, index);
      }
    }
  }

 private:
  std::size_t stream_of(Position position) const {
    return static_cast<std::size_t>(instruction(position).stream);
  }
  const Instruction& instruction(Position position) const {
    return schedule_.instructions[(position - 1) % count_];
  }

  void visit(std::uint32_t step, std::uint32_t index) {
    Instruction& me = schedule_.instructions[index];
    const Position position = step * count_ + index + 1;
    const bool release = me.kind == InstructionKind::kRelease;
    const std::vector<BufferUse> my_uses = uses(tape_, me);
    std::vector<Position> needed = release ? all_uses(me.buffer) : conflicts(my_uses);
    if (me.kind == InstructionKind::kAllocate) {
      needed = last_uses_of_place(me.buffer);
    }
    Clock clock = release ? Clock{} : streams_[static_cast<std::size_t>(me.stream)];
    me.waits = reduce(needed, clock, position);
    if (release) {
      leave_place(me.buffer);
      accesses_[me.buffer] = {};
      return;
    }
    clock[static_cast<std::size_t>(me.stream)] = position;
    clocks_[position] = clock;
    streams_[static_cast<std::size_t>(me.stream)] = clock;
    note(my_uses, me, position);
  }

  std::vector<Position> all_uses(BufferId buffer) const {
    std::vector<Position> result = accesses_[buffer].reads;
    result.push_back(accesses_[buffer].write);
    return result;
  }

  std::vector<Position> conflicts(const std::vector<BufferUse>& my_uses) const {
    std::vector<Position> result;
    for (const BufferUse& use : my_uses) {
      result.push_back(accesses_[use.buffer].write);
      if (use.write) {
        result.insert(result.end(), accesses_[use.buffer].reads.begin(), accesses_[use.buffer].reads.end());
      }
    }
    return result;
  }

  static AddressRange place(const Buffer& buffer) { return {.begin = *buffer.offset, .bytes = buffer.bytes}; }

  // The last uses of the earlier buffers in this buffer's bytes of the arena.
  std::vector<Position> last_uses_of_place(BufferId id) {
    std::vector<Position> result;
    const Buffer& buffer = schedule_.buffers[id];
    if (buffer.offset) {
      last_uses_.visit(place(buffer), [&](AddressRange, const std::vector<Position>* uses) {
        if (uses != nullptr) {
          result.insert(result.end(), uses->begin(), uses->end());
        }
      });
    }
    return result;
  }

  void leave_place(BufferId id) {
    const Buffer& buffer = schedule_.buffers[id];
    if (buffer.offset) {
      last_uses_.assign(place(buffer), all_uses(id));
    }
  }

  // Returns waits for a few instructions of `needed` that imply all other instructions of `needed`. Tries the
  // latest instruction first, since it often implies earlier ones.
  std::vector<Wait> reduce(std::vector<Position>& needed, Clock& clock, Position position) const {
    std::ranges::sort(needed, std::ranges::greater());
    const std::uint64_t step = (position - 1) / count_;
    std::vector<Wait> waits;
    for (const Position other : needed) {
      if (other == 0 || clock[stream_of(other)] >= other) {
        continue;
      }
      const std::uint64_t other_step = (other - 1) / count_;
      waits.push_back({.instruction = static_cast<std::uint32_t>((other - 1) % count_),
                       .steps_ago = static_cast<std::uint32_t>(step - other_step)});
      join(clock, clocks_[other]);
    }
    return waits;
  }

  void note(const std::vector<BufferUse>& my_uses, const Instruction& me, Position position) {
    if (me.kind == InstructionKind::kAllocate) {
      accesses_[me.buffer] = {.write = position, .reads = {}};
    }
    for (const BufferUse& use : my_uses) {
      if (!use.write) {
        accesses_[use.buffer].reads.push_back(position);
      }
    }
    for (const BufferUse& use : my_uses) {
      if (use.write) {
        accesses_[use.buffer] = {.write = position, .reads = {}};
      }
    }
  }

  const Tape& tape_;
  Schedule& schedule_;
  const std::uint64_t count_;
  std::array<Clock, kStreamRoles> streams_{};
  std::vector<Clock> clocks_;           // by position: the clock once that instruction is done
  std::vector<LastAccesses> accesses_;  // by buffer
  // By byte of the arena: the uses of the last buffer that was released there.
  IntervalMap<std::vector<Position>> last_uses_;
};

}  // namespace

void derive_waits(const Tape& tape, Schedule& schedule) {
  WaitDeriver(tape, schedule).run();
}

}  // namespace vdnn
