#pragma once
// Lists the values in device memory at one moment of a step, with the reason for each, and states the least
// memory that any plan needs at that moment.

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
  kForGood,    // permanent: sums of gradients, the loss scale, and buffers that `baseline` allocates once
  kOperand,    // the current op reads or makes it
  kWorkspace,  // of the current op
  kNeeded,     // a later op needs it
  kFetched,    // a later op needs it, and it has been, or is being, copied back for that op
  kLeaving,    // it will be fetched before its next use; it stays until its copy is done or its memory is
               // needed
  kUnused      // no op needs it any more
};
std::string to_string(Reason reason);

struct Occupant {
  ValueId value = kNone;  // kNone: workspace
  std::string name;
  std::uint64_t bytes = 0;
  Reason reason = Reason::kUnused;
  OpId needed_by = kNone;  // the next op that needs it, after the current one
};

// Memory in use at an instruction, attributed to a launch.
struct MemoryUse {
  std::uint32_t launch = kNone;  // index of its instruction
  std::uint64_t bytes = 0;       // in use, persistent values included
  // The same bytes with each buffer rounded up to the device's alignment.
  std::uint64_t aligned_bytes = 0;
  std::vector<Occupant> occupants;  // largest first
};

// The moment with the most bytes in use, by the order of the instructions. Has no occupants if the schedule
// has no launches.
MemoryUse fullest_moment(const Tape& tape, const Schedule& schedule, std::uint64_t alignment_bytes);
// The moment at which a launch runs; `launch` is the index of its instruction.
MemoryUse memory_at(const Tape& tape, const Schedule& schedule, std::uint32_t launch,
                    std::uint64_t alignment_bytes);

// Bytes that an op needs while it runs, under any decisions: a lower bound for every plan. Without the
// overhead of alignment and granules.
struct Irreducible {
  OpId op = kNone;
  std::uint64_t persistent_bytes = 0;  // parameters and the optimizer's state, operands or not
  std::uint64_t operand_bytes = 0;     // all other operands; values overwritten in place count once
  std::uint64_t workspace_bytes = 0;   // of the algorithm that needs least, or of the recorded one

  std::uint64_t bytes() const { return persistent_bytes + operand_bytes + workspace_bytes; }
};
Irreducible irreducible_at(const Tape& tape, const PlanOptions& options, OpId op);
// The needs of the op that needs most; of the first such op if there are several.
Irreducible most_irreducible(const Tape& tape, const PlanOptions& options);

}  // namespace vdnn
