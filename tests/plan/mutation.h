#pragma once
// Breaks schedules, one break at a time, with the mistakes that planners and lowerings make. If an
// instruction moves, the waits that name it follow.

#include <cstdint>
#include <optional>
#include <string>

#include "tests/plan/choices.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {

enum class MutationKind : std::uint8_t {
  // Order.
  kDropWait,
  kDropWaitAcrossBorder,  // drops a wait for an instruction of the previous step
  kChangeStepsAgo,
  kRetargetWait,
  kAddWait,
  kChangeStream,
  kSwap,
  kMoveAnyEarlier,
  kMoveAnyLater,
  kMoveReleaseEarlier,
  kMoveReleaseLater,
  kMoveOffloadEarlier,
  kMoveOffloadLater,
  kMovePrefetch,  // earlier or later, with its allocation or without
  kMovePrefetchAcrossBorder,
  kMoveReadEarlier,  // moves the read of a result
  // Presence of instructions.
  kDropAllocate,
  kDropRelease,
  kDropOffload,
  kDropPrefetch,
  kDropWork,  // a launch, a load or a read of a result
  kDouble,
  // Contents of instructions and buffers.
  kRetargetOperand,  // to a buffer of the same size in the same space
  kRetargetToAny,
  kWrongHostBuffer,  // of an offload or a prefetch
  kWrongValue,       // of a copy
  kWrongWorkspace,
  kWrongAlgorithm,  // with the workspace of the right algorithm
  kOverwrite,       // an op writes into the buffer of one of its reads, and later readers read there
  kMergeBuffers,
  kChangeBuffer,  // its size, space or lifetime
  kMovePlace,     // moves a buffer in the arena onto another one
  // Lives of a value, which uses several device buffers one after the other.
  kReadEarlierLife,        // a reader reads the buffer of the previous life
  kReturnIntoEarlierLife,  // fetches or recomputes into that buffer; readers may follow
  kReleaseOtherLife,       // one life is released twice, another one never
  kEndLifeEarly,           // releases its buffer before the last use, after the others
  kFreeHostCopyEarly       // releases the copy before its last fetch, after the others; prefers copies with
                           // several fetches
};
inline constexpr std::size_t kMutationKinds = 37;
std::string to_string(MutationKind kind);

struct Mutant {
  Schedule schedule;
  std::string what;  // description of the change
};

// Returns nothing if the schedule cannot be broken in this way with these choices.
std::optional<Mutant> mutate(const Tape& tape, const Schedule& intact, MutationKind kind, Choices& choices);

}  // namespace vdnn::testing
