#pragma once
// What a schedule keeps in the device's memory, and when, judged by the order of its list: when a step runs,
// its streams are at different places of the list at once, but what the memory must hold follows from it.

#include <cstdint>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// A value in a buffer. Where one overwrites another in place the buffer holds both, one behind the other.
struct Holding {
  ValueId value = kNone;    // kNone: workspace
  std::uint32_t first = 0;  // the instruction of the step that uses it there first
  std::uint32_t last = 0;   // and last
};

// A buffer while it is there: from the instruction that allocates it up to, but not with, the one that
// releases it. A persistent buffer is there from the first instruction on, and one that is not released to
// the end.
struct Residence {
  BufferId buffer = kNone;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<Holding> holdings;  // in order of first use; empty where no instruction uses it

  bool present(std::uint32_t instruction) const { return begin <= instruction && instruction < end; }
  // The value that it holds while `instruction` runs; of two that take turns there, the one that is written.
  // Before its first use the one that it is for. kNone: workspace, or what is never used.
  ValueId value_at(std::uint32_t instruction) const;
};

// Of all buffers on the device: persistent ones, then the others in order of allocation.
std::vector<Residence> residences(const Tape& tape, const Schedule& schedule);

// Bytes on the device while each instruction runs, what is persistent included; what it allocates counts,
// what it releases does not. Without what alignment and granules add.
std::vector<std::uint64_t> bytes_in_use(const Schedule& schedule);

// The first launch (or recomputation) for which most memory is in use: it, or an allocation since the launch
// before it, is where the bytes are most. kNone without launches there.
std::uint32_t fullest_launch(const Schedule& schedule, const std::vector<std::uint64_t>& bytes_in_use);

}  // namespace vdnn
