#pragma once
// Derives the waits of a list of instructions from what they read and write.

#include "vdnn/schedule.h"

namespace vdnn {

// Fills Instruction::waits: for each pair of instructions on different streams that use the same buffer, one
// of them writing, the later waits for the earlier, unless that is implied already; a release waits for every
// last use, and an allocation in the arena for the last uses of what lay in its bytes. Dependencies across
// the step's border (on persistent buffers) become waits on the step before.
void derive_waits(const Tape& tape, Schedule& schedule);

}  // namespace vdnn
