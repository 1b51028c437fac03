#pragma once
// A schedule: the plan lowered to a flat list of instructions, one iteration, each on a named stream with the
// instructions that it waits for. The executor interprets it; it can be printed, stored, compared, checked
// (checker.h) and replayed on any driver.
//
// Instructions are executed (submitted) in the order of the list, and steps follow each other. What an
// instruction is ordered after: what came before it on its stream, its waits, and their past. Memory adds
// order of its own at run time (a block is reused only after its last users, see device_pool.h), but a
// schedule may not rely on that: it must be right for memory that is never reused.
//
// Buffers are what is allocated. A persistent buffer exists before the first step and after the last; any
// other is allocated and released in each step. `Release` belongs to no stream: its waits are the last uses,
// and the allocator gets their frontier.
//
// A schedule may bring its own addresses (placement.h): then one block of the device, the arena, is taken for
// all buffers that are not persistent, and the waits of an allocation are the last uses of what lay in its
// bytes before, so that such a schedule is right for the memory that it names.

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

// kReduce: what ranks do together, and nothing else; there is none where a device trains alone.
enum class StreamRole : std::uint8_t { kCompute, kOffload, kPrefetch, kLoad, kReduce };
inline constexpr std::size_t kStreamRoles = 5;
std::string to_string(StreamRole role);

enum class Space : std::uint8_t { kDevice, kHost };

struct Buffer {
  std::string name;
  std::uint64_t bytes = 0;
  Space space = Space::kDevice;
  bool persistent = false;
  std::optional<std::uint64_t> offset;  // in the arena
};

enum class InstructionKind : std::uint8_t {
  kAllocate,    // buffer, for `stream`
  kRelease,     // buffer, after the waits
  kLoad,        // value (an input) from the host's batch into buffer
  kLaunch,      // op, on operands
  kOffload,     // value from buffer to host_buffer
  kPrefetch,    // value from host_buffer to buffer
  kReadResult,  // value (one of the tape's results) from buffer to the host
  kRecompute    // op once more, on operands, for values that had been dropped
};
std::string to_string(InstructionKind kind);
// Does it run an op?
constexpr bool is_launch(InstructionKind kind) {
  return kind == InstructionKind::kLaunch || kind == InstructionKind::kRecompute;
}

// An instruction of the same step, or of the one before; the latter is no wait in the first step.
struct Wait {
  std::uint32_t instruction = 0;
  std::uint32_t steps_ago = 0;  // 0 or 1
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::kLaunch;
  StreamRole stream = StreamRole::kCompute;
  OpId op = kNone;
  ValueId value = kNone;
  BufferId buffer = kNone;
  BufferId host_buffer = kNone;
  // Launch, recompute: a buffer for each of the op's reads, then each of its writes, then the workspace
  // (kNone without).
  std::vector<BufferId> operands;
  std::vector<Wait> waits;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Schedule {
  std::vector<std::uint32_t> algorithms;  // an op
  std::vector<Buffer> buffers;            // persistent ones first
  std::vector<Instruction> instructions;
  // Of the block that holds the buffers with an offset; 0: there are none. Where it is not, all buffers on
  // the device have one but those that are persistent.
  std::uint64_t arena_bytes = 0;
};

// Waits are on real dependencies only, and none that another already implies. Throws InvalidArgument where
// the plan does not belong to the tape.
Schedule make_schedule(const Tape& tape, const Plan& plan);

// Copied to the host in one step. Bytes.
std::uint64_t offload_bytes(const Tape& tape, const Schedule& schedule);
// Ops that are launched once more in one step.
std::size_t recomputed_ops(const Schedule& schedule);
// The name of the op that a step launches last; empty where it launches none.
std::string_view last_launch(const Tape& tape, const Schedule& schedule);

// The op at which most of the device's memory is in use, judged by the order of the list; 0 without ops.
OpId fullest_op(const Tape& tape, const Schedule& schedule);

// A line an instruction, for people.
std::string describe(const Tape& tape, const Instruction& instruction);
// What traces and findings call its work: the op that is launched, else describe().
std::string trace_name(const Tape& tape, const Instruction& instruction);
void print(std::ostream& out, const Tape& tape, const Schedule& schedule);

// What a launch, recompute, load, offload, prefetch or read of a result reads and writes, as pairs of buffer
// and value; reads first.
struct BufferUse {
  BufferId buffer = kNone;
  ValueId value = kNone;  // kNone: workspace
  bool write = false;
};
std::vector<BufferUse> uses(const Tape& tape, const Instruction& instruction);

}  // namespace vdnn
