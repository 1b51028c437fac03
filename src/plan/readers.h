#pragma once
// The readers of a value on either side of the border between the forward and the backward pass.

#include "vdnn/tape.h"

namespace vdnn {

// The last op of the forward pass that reads the value; kNone if none does.
OpId last_forward_reader(const Tape& tape, ValueId value);
// The first op after the forward pass that reads the value; kNone if none does.
OpId first_backward_reader(const Tape& tape, ValueId value);

}  // namespace vdnn
