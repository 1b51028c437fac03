#pragma once
// The checker proves that a schedule is right when it runs step after step. Defects hide at the border
// between steps, so the checker walks through two steps in a row. With vector clocks over streams and waits
// it proves:
//
//   * every operand lies in a buffer that is allocated at that point and holds the value's right version;
//   * two accesses to a buffer are ordered if either is a write, an allocation or a release, so
//     execution in any order that the waits permit reads what execution in the order of the list reads;
//   * every buffer that is not persistent is released once, after its last use, in its own step;
//   * every value of the tape is made once per step, by its own op;
//   * a persistent value has one place, a persistent buffer of its own, and never moves;
//   * only the compute stream launches ops, and only the stream of reductions sums over ranks.
//
// The checker shares no code with the derivation of waits (src/plan/waits.cpp). src/plan/checker/ has one
// part for each rule. The running time is about linear in the number of instructions.

#include <string>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn {

// The first 20 findings, one sentence each with the names of the instructions. Empty if the schedule is
// right. Accepts any schedule, whatever numbers it contains.
std::vector<std::string> check_schedule(const Tape& tape, const Schedule& schedule);

// Throws ScheduleError with the first finding and the number of others.
void require_valid(const Tape& tape, const Schedule& schedule);

}  // namespace vdnn
