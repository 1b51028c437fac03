#pragma once
// Derives the waits of a schedule's instructions from their reads and writes.

#include "vdnn/schedule.h"

namespace vdnn {

// Fills Instruction::waits. Suppose that two instructions on different streams use the same buffer and one of
// them writes it. Then the later instruction waits for the earlier one, unless another wait implies this. A
// release waits for its buffer's last write and the reads after it. An allocation in the arena waits for the
// last uses of the earlier buffers in its bytes. Dependencies between steps (on persistent buffers) become
// waits for the previous step.
void derive_waits(const Tape& tape, Schedule& schedule);

}  // namespace vdnn
