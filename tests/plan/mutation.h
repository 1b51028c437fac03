#pragma once
// Breaks schedules, one break at a time, in the ways in which planners and lowerings go wrong. Instructions
// keep their identity: where they move, the waits that name them follow.

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "vdnn/schedule.h"

namespace vdnn::testing {

enum class MutationKind : std::uint8_t {
  kDropWait,
  kChangeStepsAgo,
  kChangeStream,
  kSwap,
  kMoveReleaseEarlier,
  kMoveOffloadLater,
  kRemovePrefetch,
  kMovePrefetchAcrossBorder,
  kRetargetOperand,
  kDropAllocate,
  kDropRelease
};
inline constexpr std::size_t kMutationKinds = 11;
std::string to_string(MutationKind kind);

struct Mutant {
  Schedule schedule;
  std::string what;  // was done, in words
};

// Empty where the schedule offers nothing to break in this way.
std::optional<Mutant> mutate(const Tape& tape, const Schedule& intact, MutationKind kind,
                             std::mt19937_64& random);

}  // namespace vdnn::testing
