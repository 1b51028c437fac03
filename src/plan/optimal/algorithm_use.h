#pragma once
// Chooses the algorithm of each op, and computes the resulting memory in use at each slot. An op uses the
// fastest of the permitted algorithms whose workspace fits at all launches of the op: at its own slot and, if
// the op is launched again, before other slots.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/recomputations.h"

namespace vdnn::optimal {

// The device memory of a step, in bytes, for all that is not persistent.
struct Room {
  std::uint64_t bytes = 0;
  // The part of `bytes` that plans should use; the remaining bytes make addresses easier to find. An op may
  // use more only if it otherwise could not run or would have to use an algorithm of the last resort.
  std::uint64_t soft_bytes = 0;
};

// The memory that a slot lacks.
struct Shortage {
  OpId slot = 0;
  std::uint64_t bytes = 0;
};

struct AlgorithmUse {
  std::vector<Shortage> shortages;    // by slot; if there are any, the other members are incomplete
  std::vector<std::uint32_t> choice;  // by op: an index into Problem::choices()
  std::vector<double> seconds;        // by slot: of its op and of the ops that are launched again before it
  std::vector<std::uint64_t> bytes;   // by slot: the most bytes in use, with workspaces, while these ops run
  std::vector<bool> stepped_down;     // by slot: whether its op lacked memory for a faster algorithm
};

// Keeps its storage from call to call. Use it from one thread. The problem must outlive it.
class AlgorithmChooser {
 public:
  explicit AlgorithmChooser(const Problem& problem) : problem_(problem) {}

  // The result is valid until the next call.
  const AlgorithmUse& choose(const Decisions& decisions, const Recomputations& recomputations, Room room);

 private:
  void find_residents(const Decisions& decisions, const Recomputations& recomputations);
  void find_free(const Recomputations& recomputations, std::uint64_t bytes);
  std::uint64_t bytes_before(const LaunchedAgain& again) const;
  void choose_each(const Decisions& decisions, std::uint64_t slack);
  void count_workspaces(const Recomputations& recomputations);

  const Problem& problem_;
  std::vector<std::int64_t> change_;     // by slot
  std::vector<std::uint64_t> resident_;  // by slot: the bytes in use without workspaces
  std::vector<std::uint64_t> free_;      // by op: the most bytes that its workspace may have
  AlgorithmUse use_;
};

}  // namespace vdnn::optimal
