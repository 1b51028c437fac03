#pragma once
// An allocation log: what a program asked of an allocator, in order, and nothing of what it was given; so
// that any allocator can be asked the same again (bench/allocator_replay).
//
// As text, a line an event, numbers decimal:
//
//   vdnn-allocation-log 1
//   # a comment
//   p BYTES STREAM     allocates a block that is meant to last
//   a BYTES STREAM     allocates a block
//   u BLOCK STREAM     another stream uses it, too
//   f BLOCK STREAM     frees it: STREAM comes to that point, and those that used it
//   step               what follows up to the end is one step of training, and may be repeated
//
// Blocks are numbered by their allocation, from 0; streams as the program likes. What a step allocates it
// frees, and nothing else.

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

namespace vdnn {

struct AllocationEvent {
  enum class Kind : std::uint8_t { kAllocate, kUse, kFree };
  Kind kind = Kind::kAllocate;
  bool lasting = false;  // of an allocation
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

// Throws DataError, which names the line, for anything else than what is said above: a block that is used or
// freed while there is none, a step that keeps what it allocates or frees what it did not, an unknown
// version.
AllocationLog read_allocation_log(std::string_view text);
// Throws InvalidArgument for a log that could not be read.
void write_allocation_log(std::ostream& out, const AllocationLog& log);

// What was asked for and not yet freed at most, in bytes; of repeated steps no other than of one. Throws as
// above.
std::uint64_t peak_live_bytes(const AllocationLog& log);

}  // namespace vdnn
