#pragma once
// The checker: is a schedule right, followed by itself? Defects hide at the step's border, so it looks at two
// steps in a row. It proves, by vector clocks over streams and waits:
//
//   * every operand lies in a buffer that is allocated at that point and holds the right version of the
//   value;
//   * every conflicting pair of accesses to a buffer (one of them a write, an allocation or a release) is
//     ordered, so every permitted order of execution reads what the list order reads;
//   * every buffer that is not persistent is released once, after its last use, in its own step, and every
//     value that the tape makes is made, once, by the op that makes it;
//   * a persistent value has one place, a persistent buffer of its own, and is never moved; ops are launched
//   on
//     the compute stream alone.

#include <string>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn {

// All that is wrong, a sentence each with the instructions' names; empty: the schedule is right.
std::vector<std::string> check_schedule(const Tape& tape, const Schedule& schedule);

// Throws ScheduleError with the first findings.
void require_valid(const Tape& tape, const Schedule& schedule);

}  // namespace vdnn
