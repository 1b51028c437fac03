#pragma once
// An allocation log: the calls of a program to an allocator, in order, without their results. So any
// allocator can be asked for the same again (bench/allocator_replay).
//
// As text, one line per event, with decimal numbers:
//
//   vdnn-allocation-log 1
//   # a comment
//   p BYTES STREAM     allocates a block that is meant to last
//   a BYTES STREAM     allocates a block
//   u BLOCK STREAM     another stream uses it, too
//   f BLOCK STREAM     frees it after its uses so far, on STREAM and on those of `u`
//   step               what follows up to the end is one step of training, and may be repeated
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
  bool lasting = false;  // of an allocation: the block is meant to last
  std::uint32_t stream = 0;
  std::uint64_t block = 0;
  std::uint64_t bytes = 0;  // of an allocation
  friend bool operator==(const AllocationEvent&, const AllocationEvent&) = default;
};

struct AllocationLog {
  std::vector<AllocationEvent> events;
  // Where the step begins; events.size() where there is none.
  std::size_t step_begin = 0;
  friend bool operator==(const AllocationLog&, const AllocationLog&) = default;
};

// Throws DataError, which names the line, for a text that breaks the rules above: for example if a block is
// used or freed that does not exist, if a step keeps a block that it has allocated, or if the version is
// unknown.
AllocationLog read_allocation_log(std::string_view text);
// Throws InvalidArgument for a log that read_allocation_log() would refuse.
void write_allocation_log(std::ostream& out, const AllocationLog& log);

// The most bytes that are allocated and not yet freed at one time; the same for one step and for many. Throws
// as write_allocation_log().
std::uint64_t peak_live_bytes(const AllocationLog& log);

}  // namespace vdnn
