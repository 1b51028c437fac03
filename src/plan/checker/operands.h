#pragma once
// Checks the operands of one instruction. Each buffer must be large enough. Two operands of a launch may
// share a buffer only if the op permits it.

#include <vector>

#include "src/plan/checker/findings.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::checking {

// `use`: one operand of the instruction.
void check_size(const Tape& tape, const Schedule& schedule, const Visit& visit, const BufferUse& use,
                Findings& findings);

// `all`: the result of uses() for the instruction. Two operands may share a buffer if they are the same
// value, or if the op permits one of them to overwrite the other.
void check_shared_buffers(const Tape& tape, const Visit& visit, const std::vector<BufferUse>& all,
                          Findings& findings);

}  // namespace vdnn::checking
