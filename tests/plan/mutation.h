#pragma once
// Breaks schedules, one break at a time, in the ways in which planners and lowerings go wrong. Instructions
// keep their identity: where they move, the waits that name them follow.

#include <cstdint>
#include <optional>
#include <string>

#include "tests/plan/choices.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {

enum class MutationKind : std::uint8_t {
  // Order.
  kDropWait,
  kDropWaitAcrossBorder,  // one for something of the step before
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
  kMovePrefetch,  // either way, with its allocation or without
  kMovePrefetchAcrossBorder,
  kMoveReadEarlier,  // of a result
  // All kinds.
  kDropAllocate,
  kDropRelease,
  kDropOffload,
  kDropPrefetch,
  kDropWork,  // a launch, a load or a read of a result
  kDouble,
  // The instructions and buffers that it works on.
  kRetargetOperand,  // to a buffer of the same size in the same space
  kRetargetToAny,
  kWrongHostBuffer,  // of an offload or a prefetch
  kWrongValue,       // of a copy
  kWrongWorkspace,
  kWrongAlgorithm,  // with the workspace of the right one
  kOverwrite,       // one of its writes goes where one of its reads lies, for good
  kMergeBuffers,
  kChangeBuffer,  // its size, space or lifetime
  kMovePlace,     // in the arena, to where another lies
  // Lives of a value: in several buffers of the device, one after the other.
  kReadEarlierLife,        // a reader reads where the value was before it went
  kReturnIntoEarlierLife,  // it is fetched or made again there, with its readers or without
  kReleaseOtherLife,       // one life is released twice, another never
  kEndLifeEarly,           // before its last use, in order with those before
  kFreeHostCopyEarly  // before the last fetch from it, in order with those before; best of one fetched often
};
inline constexpr std::size_t kMutationKinds = 37;
std::string to_string(MutationKind kind);

struct Mutant {
  Schedule schedule;
  std::string what;  // was done, in words
};

// Empty where the schedule offers nothing to break in this way, or not with these choices.
std::optional<Mutant> mutate(const Tape& tape, const Schedule& intact, MutationKind kind, Choices& choices);

}  // namespace vdnn::testing
