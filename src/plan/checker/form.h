#pragma once
// The form of a schedule, on which the other checks rely. Every instruction names ops, values, buffers and
// earlier instructions that exist and are of the right kind. Persistent values have one place each, and
// offsets are inside the arena.

#include "src/plan/checker/findings.h"

namespace vdnn::checking {

// Returns false if the schedule does not have the form, and adds the faults to `findings`.
bool check_form(const Tape& tape, const Schedule& schedule, Findings& findings);

}  // namespace vdnn::checking
