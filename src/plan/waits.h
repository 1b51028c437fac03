#pragma once
// Derives the waits of a list of instructions from what they read and write.

#include "vdnn/schedule.h"

namespace vdnn {

// Fills Instruction::waits. If two instructions on different streams use the same buffer and one of them
// writes, the later waits for the earlier unless another wait implies it. A release waits for every last use
// of its buffer. An allocation in the arena waits for the last uses of the earlier buffers in its bytes.
// Dependencies between steps (on persistent buffers) become waits for the previous step.
void derive_waits(const Tape& tape, Schedule& schedule);

}  // namespace vdnn
