#pragma once
// Checks the form of a schedule, on which the other checks rely. Every instruction must name ops, values,
// buffers and earlier instructions that exist and are of the right kind. Each persistent value must have one
// place, and offsets must be inside the arena.

#include "src/plan/checker/findings.h"

namespace vdnn::checking {

// Returns whether the schedule has this form. If not, adds the faults to `findings`.
bool check_form(const Tape& tape, const Schedule& schedule, Findings& findings);

}  // namespace vdnn::checking
