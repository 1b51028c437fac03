#pragma once
// Computes when each copy of a step runs, and how long the step takes: the part of the planner's model
// (step_model.h) that models time. It goes through the step twice. The first pass times the copies to the
// host, as if every fetched value were back in time, and yields the memory in use at each slot. Prefetches
// are then placed in the remaining memory, the last one first. The second pass runs both directions of the
// link together.
//
// Offloads start when their values are made, and run one after the other. A copied value lingers on the
// device until its memory is needed; the compute stream waits only if the copy is not done by then. A
// prefetch starts as late as the link permits without delaying an op, and later if memory is short.
// Prefetches start in the order of need.

#include <cstdint>
#include <utility>
#include <vector>

#include "src/plan/optimal/algorithm_use.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/recomputations.h"
#include "src/plan/optimal/segment_tree.h"

namespace vdnn::optimal {

// A step before its copies are placed.
struct UntimedStep {
  const Fates& fates;
  const Recomputations& recomputations;
  const AlgorithmUse& algorithms;
  std::uint64_t bytes = 0;  // memory that copies may use
  double longest = 0;       // seconds; a longer step is not timed to its end
};

// The copy of the value of `gap`, which also serves the value's later gaps.
struct CopyToHost {
  OpId slot = 0;  // the op at which it starts
  std::uint32_t gap = 0;
  bool at_start = false;  // at the start of the op; otherwise at its end
};

struct Timing {
  double seconds = 0;  // from step to step; infinite if longer than `longest`: then the rest is incomplete
  std::uint64_t host_bytes = 0;    // bytes offloaded
  std::vector<CopyToHost> copies;  // in the order in which they start
  std::vector<OpId> release;       // by gap: the op with which the memory of a copied value is released
  std::vector<OpId> prefetch;      // by gap: the op with which the value is fetched
  OpId next_load = 0;              // see StepModel::next_load()
  std::vector<OpId> held_up;       // slots at which a copy lacked memory, in any order
};

// Keeps its memory from call to call. Belongs to one thread; the problem outlives it.
class StepTimer {
 public:
  explicit StepTimer(const Problem& problem);

  // Valid until the next call.
  const Timing& time(const UntimedStep& step);

 private:
  // The load of the next step's inputs, of which a part may run while this step computes.
  struct NextLoad {
    OpId slot = 0;  // the slot from which on there is room for them
    std::uint64_t bytes = 0;
    double seconds = 0;  // time that the next step waits for them
  };
  // The step without prefetches.
  struct Departures {
    bool in_time = false;              // not longer than `longest`; otherwise the rest is incomplete
    std::vector<std::uint64_t> bytes;  // by slot: in use, with lingering values and the next inputs
    std::vector<double> start;         // by slot: seconds
    std::vector<double> copied;        // by gap: the time at which the value is on the host
    std::vector<bool> forced;          // by gap: whether its memory was needed before it was copied
  };
  class Outbound;

  void find_copies(const UntimedStep& step);
  NextLoad hide_next_load(const UntimedStep& step) const;
  const Departures& depart(const UntimedStep& step, double all_seconds, const NextLoad& load);
  void order_fetches(const UntimedStep& step);
  void place_prefetches(const UntimedStep& step, const Departures& departures);
  double run(const UntimedStep& step, double all_seconds, const NextLoad& load, const Departures& departures);
  double copy_beside(double begin, double seconds, double seconds_both_ways, double other_until) const;

  const Problem& problem_;
  std::vector<std::uint32_t> by_first_after_;  // gaps
  std::vector<std::uint32_t> by_last_before_;  // gaps
  Timing timing_;
  std::vector<std::uint32_t> offloaded_;  // gaps, in order of `last_before`
  std::vector<std::uint32_t> fetched_;    // the same gaps, in order of need
  Departures departures_;
  // Temporary storage of single stages.
  std::vector<std::pair<double, std::uint32_t>> lingering_;  // heap of times and gaps
  std::vector<std::pair<OpId, std::uint32_t>> due_;          // heap of slots and gaps
  std::vector<std::int64_t> in_use_;
  SegmentTree tree_;
  std::vector<std::uint32_t> held_;
  std::vector<double> copied_;
  std::vector<double> arrival_;
};

}  // namespace vdnn::optimal
