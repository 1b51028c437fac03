#pragma once
// The operands of one instruction: each buffer is large enough, and two operands of a launch share one only
// as the op permits.

#include <vector>

#include "src/plan/checker/findings.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::checking {

void check_size(const Tape& tape, const Schedule& schedule, const Visit& visit, const BufferUse& use,
                Findings& findings);

// `all`: uses() of the instruction. Two operands may share a buffer if the op permits one to overwrite the
// other, or if they are the same value.
void check_shared_buffers(const Tape& tape, const Visit& visit, const std::vector<BufferUse>& all,
                          Findings& findings);

}  // namespace vdnn::checking
