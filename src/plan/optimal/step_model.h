#pragma once
// Analytical model of one step, given the planner's decisions and the memory for all that is not persistent.
// The model chooses the algorithms, and the times at which offloaded values are released and prefetched. It
// then computes how long the step takes. The search evaluates the model thousands of times; the real executor
// then predicts the plans that win.
//
// Ops follow each other on the compute stream. The model has three stages. Each uses the results of those
// above it:
//
//   RecomputationFinder  which ops are launched again, and before which slots (recomputations.h)
//   AlgorithmChooser     the algorithm of each op, and the memory in use at each slot (algorithm_use.h)
//   StepTimer            when each copy runs, and how long the step takes (step_timer.h)
//
// Memory is counted as if bytes fitted anywhere: placement.h comes within a few thousandths of that.

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "src/plan/optimal/algorithm_use.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/recomputations.h"
#include "src/plan/optimal/step_timer.h"
#include "vdnn/plan.h"

namespace vdnn::optimal {

struct Outcome {
  // The slots where memory does not suffice. If there are any, nothing else is meaningful.
  std::vector<Shortage> shortages;
  std::uint32_t impossible_gap = kNone;  // its value cannot be made again under these decisions

  double seconds = 0;            // from step to step; infinite if longer than `longest`
  std::uint64_t host_bytes = 0;  // bytes offloaded

  bool feasible() const { return shortages.empty() && impossible_gap == kNone; }
};

// Belongs to one thread. The problem outlives it.
class StepModel {
 public:
  explicit StepModel(const Problem& problem);

  // `bytes` are for all that is not persistent. Only ops that could not run otherwise use the fraction
  // `slack` of the memory, so that addresses are easier to find. A step of more than `longest` seconds is of
  // no use and is not timed to its end. The functions below describe the last evaluation, and `decisions`
  // must outlive their calls.
  Outcome evaluate(const Decisions& decisions, std::uint64_t bytes, double slack = 0,
                   double longest = std::numeric_limits<double>::infinity());

  // All functions below except relieve() require that the step was feasible and not too long.

  // Writes algorithms, transfers and recomputations.
  void write(Plan& plan) const;
  // The slot from which on there is room for the next step's inputs. If there is no such slot,
  // Problem::load_slot(), since the places of the inputs may still be free.
  OpId next_load() const { return timing_->next_load; }
  // The algorithm of an op, as an index into Problem::choices().
  std::uint32_t choice(OpId op) const { return algorithms_->choice[op]; }
  // The slots at which more memory might make the step shorter: an algorithm stepped down there, a copy
  // delayed an op, or a prefetch had to start late.
  std::vector<bool> tight() const;
  // The tight slots at which a copy, not the choice of an algorithm, lacked memory. In any order.
  const std::vector<OpId>& held_up() const { return timing_->held_up; }

  // `decisions` were evaluated last and were short of memory. Frees memory at each slot before which ops are
  // launched again, in addition to memory freed at earlier slots. A value that is recomputed ahead of its own
  // next use is recomputed again for that use. If there is no such value, a random one of the recomputed
  // values is offloaded. Returns false if no op is launched again before any of the slots.
  bool relieve(const std::vector<Shortage>& shortages, Decisions& decisions, std::minstd_rand& random) const;

 private:
  std::vector<std::uint32_t> recomputed_at(OpId slot) const;

  const Problem& problem_;
  RecomputationFinder recomputation_finder_;
  AlgorithmChooser algorithm_chooser_;
  StepTimer step_timer_;
  // The arguments and results of the last evaluation.
  const Decisions* decisions_ = nullptr;
  const Recomputations* recomputations_ = nullptr;
  const AlgorithmUse* algorithms_ = nullptr;
  const Timing* timing_ = nullptr;
};

}  // namespace vdnn::optimal
