#pragma once
// Computes when each copy of a step runs, and how long the step takes. This is the part of the planner's
// model (step_model.h) that models time. It simulates the step twice. The first pass times the copies to the
// host, as if every fetched value were back in time, and computes the memory in use at each slot. Prefetches
// are then placed in the remaining memory, from the last to the first. The second pass simulates both
// directions of the link together.
//
// Offloads start when their values are made, and run one after the other. A copied value stays on the device
// until its memory is needed (it *lingers*). The compute stream waits only if the copy is not done by then. A
// prefetch starts as late as is possible without delaying an op, and still later if memory is lacking.
// Prefetches start in the order in which their values are needed.

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
  std::uint64_t bytes = 0;  // the memory for all that is not persistent
  double longest = 0;       // in seconds; the timing of a longer step stops early
};

// The copy of the value of `gap` to the host. The value's later gaps use the same copy.
struct CopyToHost {
  OpId slot = 0;  // the op at which the copy starts
  std::uint32_t gap = 0;
  bool at_start = false;  // whether the copy starts with the op; otherwise it starts after the op
};

struct Timing {
  double seconds = 0;              // infinite if longer than `longest`; then the other members are incomplete
  std::uint64_t host_bytes = 0;    // bytes offloaded
  std::vector<CopyToHost> copies;  // in the order in which they start
  std::vector<OpId> release;       // by gap: the op with which the memory of a copied value is released
  std::vector<OpId> prefetch;      // by gap: the op with which the value is fetched
  OpId next_load = 0;              // see StepModel::next_load()
  std::vector<OpId> held_up;       // slots at which a copy lacked memory, in any order
};

// Keeps its storage from call to call. Use it from one thread. The problem must outlive it.
class StepTimer {
 public:
  explicit StepTimer(const Problem& problem);

  // The result is valid until the next call.
  const Timing& time(const UntimedStep& step);

 private:
  // The load of the next step's inputs. A part of the load may run while this step computes.
  struct NextLoad {
    OpId slot = 0;  // the slot from which on there is memory for the inputs
    std::uint64_t bytes = 0;
    double seconds = 0;  // time that the next step waits for its inputs
  };
  // The results of the first pass, which has no prefetches.
  struct Departures {
    // False if the step is longer than `longest`. Then the other members are incomplete.
    bool in_time = false;
    // By slot: bytes in use, with lingering values and the next step's inputs.
    std::vector<std::uint64_t> bytes;
    std::vector<double> start;   // by slot: when its op starts, in seconds
    std::vector<double> copied;  // by gap: the time at which the value is on the host
    std::vector<bool> forced;    // by gap: whether its memory was needed before it was copied
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
