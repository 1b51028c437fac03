#pragma once
// The form of a schedule: every instruction names ops, values, buffers and earlier instructions that exist
// and are of the right kind, persistent values have one place each, and offsets lie inside the arena. The
// other checks rely on it.

#include "src/plan/checker/findings.h"

namespace vdnn::checking {

// False if the schedule lacks the form; `findings` then has the places.
bool check_form(const Tape& tape, const Schedule& schedule, Findings& findings);

}  // namespace vdnn::checking
