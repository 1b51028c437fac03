#pragma once
// The algorithm of each op, and the resulting memory in use at each slot. An op uses the fastest algorithm
// that the decisions permit and whose workspace fits at its slot and at every slot before which the op is
// launched again.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/recomputations.h"

namespace vdnn::optimal {

// The device memory of a step, in bytes, for all that is not persistent.
struct Room {
  std::uint64_t bytes = 0;
  // Only ops that otherwise could not run, or would use an algorithm of the last resort, may exceed this. The
  // rest makes addresses easier to find.
  std::uint64_t soft_bytes = 0;
};

// The memory that a slot lacks.
struct Shortage {
  OpId slot = 0;
  std::uint64_t bytes = 0;
};

struct AlgorithmUse {
  std::vector<Shortage> shortages;    // by slot; if there are any, the rest is incomplete
  std::vector<std::uint32_t> choice;  // by op: an index into Problem::choices()
  std::vector<double> seconds;        // by slot: for its op and those that are launched again before it
  std::vector<std::uint64_t> bytes;   // by slot: the most in use, with workspaces, while these ops run
  std::vector<bool> stepped_down;     // by slot: its op lacked memory for a faster algorithm
};

// Keeps its memory from call to call. Belongs to one thread; the problem outlives it.
class AlgorithmChooser {
 public:
  explicit AlgorithmChooser(const Problem& problem) : problem_(problem) {}

  // Valid until the next call.
  const AlgorithmUse& choose(const Decisions& decisions, const Recomputations& recomputations, Room room);

 private:
  void find_residents(const Decisions& decisions, const Recomputations& recomputations);
  void find_free(const Recomputations& recomputations, std::uint64_t bytes);
  std::uint64_t bytes_before(const LaunchedAgain& again) const;
  void choose_each(const Decisions& decisions, std::uint64_t slack);
  void count_workspaces(const Recomputations& recomputations);

  const Problem& problem_;
  std::vector<std::int64_t> change_;     // by slot
  std::vector<std::uint64_t> resident_;  // by slot: without workspaces
  std::vector<std::uint64_t> free_;      // by op: the most bytes for its workspace
  AlgorithmUse use_;
};

}  // namespace vdnn::optimal
