#pragma once
// The contents of the device's memory at each instruction of a schedule, in the order of the schedule. In a
// running step, streams execute different instructions of the schedule at the same time. But the order of the
// schedule alone decides what must be in memory.

#include <cstdint>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// A value in a buffer, and when it is used there. If a value overwrites another in place, the buffer has two
// holdings, one after the other.
struct Holding {
  ValueId value = kNone;    // kNone for workspace
  std::uint32_t first = 0;  // the first instruction of the step that uses the value in this buffer
  std::uint32_t last = 0;   // the last such instruction
};

// A buffer while it exists: from the instruction that allocates it up to, but not including, the instruction
// that releases it. A persistent buffer exists from the first instruction to the end of the step. A buffer
// that is never released exists until the end of the step.
struct Residence {
  BufferId buffer = kNone;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<Holding> holdings;  // in order of first use; empty if no instruction uses the buffer

  bool present(std::uint32_t instruction) const { return begin <= instruction && instruction < end; }
  // The value in the buffer while `instruction` runs. If the instruction overwrites a value, this is the new
  // value. Before the first use, it is the first value. kNone for workspace, and for a buffer that is never
  // used.
  ValueId value_at(std::uint32_t instruction) const;
};

// The residence of each device buffer: persistent buffers first, then all other buffers in order of
// allocation.
std::vector<Residence> residences(const Tape& tape, const Schedule& schedule);

// The bytes on the device while each instruction runs, persistent buffers included. A buffer that the
// instruction allocates counts; a buffer that it releases does not. Alignment and granules are left out.
std::vector<std::uint64_t> bytes_in_use(const Schedule& schedule);

// The largest of bytes_in_use(); 0 if the schedule has no instruction.
std::uint64_t most_bytes_in_use(const Schedule& schedule);

// The launch or recomputation at which the most memory is in use. It is the first one at or after the
// instruction with the most bytes; kNone if there is none.
std::uint32_t fullest_launch(const Schedule& schedule, const std::vector<std::uint64_t>& bytes_in_use);

}  // namespace vdnn
