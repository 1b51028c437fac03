#pragma once
// The contents of the device's memory over the instructions of a schedule, in the order of its list. In a
// running step, streams are at different places of the list at the same time. But the list alone decides what
// must be in memory.

#include <cstdint>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// A value in a buffer. If a value overwrites another in place, the buffer holds the two one after the other.
struct Holding {
  ValueId value = kNone;    // kNone: workspace
  std::uint32_t first = 0;  // the instruction of the step that uses it there first
  std::uint32_t last = 0;   // and last
};

// A buffer while it exists: from the instruction that allocates it up to, but not including, the instruction
// that releases it. A persistent buffer exists from the first instruction to the end, and a buffer that is
// never released exists to the end.
struct Residence {
  BufferId buffer = kNone;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<Holding> holdings;  // in order of first use; empty if no instruction uses it

  bool present(std::uint32_t instruction) const { return begin <= instruction && instruction < end; }
  // The value in the buffer while `instruction` runs: the new value if the instruction overwrites one with
  // another, and the first value before the first use. kNone for workspace, and for a buffer that is never
  // used.
  ValueId value_at(std::uint32_t instruction) const;
};

// The residence of each device buffer: persistent buffers first, then the others in order of allocation.
std::vector<Residence> residences(const Tape& tape, const Schedule& schedule);

// The bytes on the device while each instruction runs, persistent buffers included. A buffer that the
// instruction allocates counts; a buffer that it releases does not. Alignment and granules are left out.
std::vector<std::uint64_t> bytes_in_use(const Schedule& schedule);

// The launch or recomputation for which the most memory is in use: the first launch at or after the
// instruction where the bytes peak, or kNone.
std::uint32_t fullest_launch(const Schedule& schedule, const std::vector<std::uint64_t>& bytes_in_use);

}  // namespace vdnn
