#pragma once
// A schedule: the plan as a flat list of instructions for one iteration, each with its stream and the
// instructions that it waits for. The executor interprets it. It can be printed, stored, compared, checked
// (checker.h) and replayed on any driver.
//
// Instructions are submitted in the order of the list, and steps follow each other. An instruction is ordered
// after the earlier instructions of its stream, after its waits, and after everything that those are ordered
// after. Memory adds further order at run time, since a block is reused only after its last users
// (device_pool.h). A schedule must not rely on that order: it must be right for memory that is never reused.
//
// A buffer is a piece of memory that is allocated. A persistent buffer exists before the first step and after
// the last; any other is allocated and released in each step. A release belongs to no stream: its waits are
// the last uses of the buffer, and the allocator is given the frontier of these uses.
//
// A schedule may contain addresses (src/plan/placement.h). Then all buffers on the device that are not
// persistent lie in one block, the arena. The waits of an allocation are the last uses of the buffers that
// occupied its bytes earlier, so such a schedule is right for the memory that it names.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/tape.h"

namespace vdnn {

using BufferId = std::uint32_t;

// kReduce carries sums over ranks and nothing else; a device that trains alone has no work on it.
enum class StreamRole : std::uint8_t { kCompute, kOffload, kPrefetch, kLoad, kReduce };
inline constexpr std::size_t kStreamRoles = 5;
std::string to_string(StreamRole role);

enum class Space : std::uint8_t { kDevice, kHost };

struct Buffer {
  std::string name;
  std::uint64_t bytes = 0;
  Space space = Space::kDevice;
  bool persistent = false;
  std::optional<std::uint64_t> offset;  // in the arena, in bytes
};

enum class InstructionKind : std::uint8_t {
  kAllocate,    // buffer, for `stream`
  kRelease,     // buffer, after the waits
  kLoad,        // value (an input) from the host's batch into buffer
  kLaunch,      // op, on operands
  kOffload,     // value from buffer to host_buffer
  kPrefetch,    // value from host_buffer to buffer
  kReadResult,  // value (one of the tape's results) from buffer to the host
  kRecompute    // op once more, on operands, for values that were dropped
};
std::string to_string(InstructionKind kind);
// Whether the instruction runs an op.
constexpr bool is_launch(InstructionKind kind) {
  return kind == InstructionKind::kLaunch || kind == InstructionKind::kRecompute;
}

// A wait for an instruction of the same step or of the previous one. The first step ignores waits for the
// previous one.
struct Wait {
  std::uint32_t instruction = 0;
  std::uint32_t steps_ago = 0;  // 0 or 1
  friend bool operator==(const Wait&, const Wait&) = default;
};

// The buffers between which an instruction copies a value.
struct BufferCopy {
  ValueId value = kNone;
  BufferId from = kNone;
  BufferId to = kNone;
};

// A field that does not belong to the kind is kNone or empty.
struct Instruction {
  InstructionKind kind = InstructionKind::kLaunch;
  StreamRole stream = StreamRole::kCompute;
  OpId op = kNone;               // launch, recompute
  ValueId value = kNone;         // load, offload, prefetch, read_result
  BufferId buffer = kNone;       // all but launch and recompute
  BufferId host_buffer = kNone;  // offload, prefetch
  // The buffers of a launch or recomputation: those of the op's reads, then of its writes, then of its
  // workspace (kNone if it has none).
  std::vector<BufferId> operands;
  std::vector<Wait> waits;

  // Each throws InvalidArgument for an instruction of another kind.
  OpId launched_op() const;    // launch, recompute
  BufferId workspace() const;  // launch, recompute; kNone if the op has none
  BufferCopy copy() const;     // offload, prefetch
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Schedule {
  std::vector<std::uint32_t> algorithms;  // by op: index into Op::algorithms
  std::vector<Buffer> buffers;            // persistent ones first
  std::vector<Instruction> instructions;
  // Size of the block that holds the buffers with an offset. If nonzero, every non-persistent device buffer
  // has an offset; if 0, none has.
  std::uint64_t arena_bytes = 0;
};

// The schedule of `plan`. Instructions wait for real dependencies only, and no wait is implied by another.
// Throws InvalidArgument if the plan does not belong to the tape or cannot be carried out (plan.h).
Schedule make_schedule(const Tape& tape, const Plan& plan);

// Bytes that one step copies to the host.
std::uint64_t offload_bytes(const Tape& tape, const Schedule& schedule);
// The number of recomputations in one step.
std::size_t recomputed_ops(const Schedule& schedule);
// The name of the op that a step launches last; empty if it launches none.
std::string_view last_launch(const Tape& tape, const Schedule& schedule);

// The op at which the most bytes of the device are in use, judged by the order of the list; 0 without ops.
OpId fullest_op(const Tape& tape, const Schedule& schedule);

// One instruction in words, for messages.
std::string describe(const Tape& tape, const Instruction& instruction);
// The name of the instruction's work in traces and findings: the op that it launches, else describe().
std::string trace_name(const Tape& tape, const Instruction& instruction);
// One line per instruction.
void print(std::ostream& out, const Tape& tape, const Schedule& schedule);

// A read or write of a value in a buffer.
struct BufferUse {
  BufferId buffer = kNone;
  ValueId value = kNone;  // kNone: workspace
  bool write = false;
};
// The reads and then the writes of the instruction. Empty for allocations and releases.
std::vector<BufferUse> uses(const Tape& tape, const Instruction& instruction);

}  // namespace vdnn
