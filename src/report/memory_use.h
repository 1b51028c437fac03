#pragma once
// Who is in the device's memory at one moment of a step, and why; and how little any plan could do with
// there.

#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

enum class Reason : std::uint8_t {
  kParameter,
  kOptimizerState,
  kForGood,    // sums of gradients, and what `baseline` allocates once
  kOperand,    // the op of the moment reads or makes it
  kWorkspace,  // of that op
  kNeeded,     // by a later op
  kFetched,    // by a later op, for which it has been, or is being, copied back
  kLeaving,    // nobody needs it until it is fetched: it stays until its copy is done, or its place is needed
  kUnused      // nobody needs it any more
};
std::string to_string(Reason reason);

struct Occupant {
  ValueId value = kNone;  // kNone: workspace
  std::string name;
  std::uint64_t bytes = 0;
  Reason reason = Reason::kUnused;
  OpId needed_by = kNone;  // the op that needs it next, after that of the moment
};

// At an instruction, on behalf of a launch.
struct MemoryUse {
  std::uint32_t launch = kNone;  // an instruction
  std::uint64_t bytes = 0;       // in use, what is persistent included
  // With each buffer rounded up to the device's alignment.
  std::uint64_t aligned_bytes = 0;
  std::vector<Occupant> occupants;  // largest first
};

// Where most is in use, judged by the order of the list; nobody is there in a schedule without launches.
MemoryUse fullest_moment(const Tape& tape, const Schedule& schedule, std::uint64_t alignment_bytes);
// While a launch runs; `launch` is the index of its instruction.
MemoryUse memory_at(const Tape& tape, const Schedule& schedule, std::uint32_t launch,
                    std::uint64_t alignment_bytes);

// What must be there while an op runs, whatever was decided: no plan runs it in less. Bytes, without what
// alignment and granules add.
struct Irreducible {
  OpId op = kNone;
  std::uint64_t persistent_bytes = 0;  // parameters and the optimizer's state, operands or not
  std::uint64_t operand_bytes = 0;     // all others; what is overwritten in place counts once
  std::uint64_t workspace_bytes = 0;   // of the algorithm that wants least, or of the recorded one

  std::uint64_t bytes() const { return persistent_bytes + operand_bytes + workspace_bytes; }
};
Irreducible irreducible_at(const Tape& tape, const PlanOptions& options, OpId op);
// Of the op for which it is most; the first of several.
Irreducible most_irreducible(const Tape& tape, const PlanOptions& options);

}  // namespace vdnn
