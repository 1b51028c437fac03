#pragma once
// An allocation log: the calls of a program to an allocator, in order, without their results. A replay makes
// the same calls to another allocator (bench/allocator_replay).
//
// As text, one line per event, with decimal numbers:
//
//   vdnn-allocation-log 1
//   # a comment
//   p BYTES STREAM     allocates a long-lived block
//   a BYTES STREAM     allocates a block
//   u BLOCK STREAM     STREAM uses the block, too
//   f BLOCK STREAM     frees the block after its uses so far on STREAM and on the streams of its `u` lines
//   step               the events from here to the end are one training step, which a replay may repeat
//
// Blocks are numbered from 0 in the order of their allocation; the program numbers streams as it likes. A
// step frees all blocks that it allocates, and no others.

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

namespace vdnn {

struct AllocationEvent {
  enum class Kind : std::uint8_t { kAllocate, kUse, kFree };
  Kind kind = Kind::kAllocate;
  bool lasting = false;  // of an allocation: the block is long-lived
  std::uint32_t stream = 0;
  std::uint64_t block = 0;
  std::uint64_t bytes = 0;  // of an allocation
  friend bool operator==(const AllocationEvent&, const AllocationEvent&) = default;
};

struct AllocationLog {
  std::vector<AllocationEvent> events;
  // Index of the step's first event; events.size() if there is no step.
  std::size_t step_begin = 0;
  friend bool operator==(const AllocationLog&, const AllocationLog&) = default;
};

// Throws DataError, which names the line, if the text breaks the rules above. Examples are an unknown
// version, a use or free of a block that does not exist, and a step that does not free a block of its own.
AllocationLog read_allocation_log(std::string_view text);
// Throws InvalidArgument for a log that read_allocation_log() would refuse.
void write_allocation_log(std::ostream& out, const AllocationLog& log);

// The most bytes that are allocated and not yet freed at any time. Repeating the step does not change it.
// Throws as write_allocation_log() does.
std::uint64_t peak_live_bytes(const AllocationLog& log);

}  // namespace vdnn
