#pragma once
// Analytical model of one step, given the planner's decisions and the memory for all that is not persistent.
// The model chooses the algorithms, and the times at which offloaded values are released and prefetched. It
// then computes how long the step takes. The search evaluates the model thousands of times. Only for its best
// decisions does a Forecaster then run the real executor (vdnn/forecast.h).
//
// Ops follow each other on the compute stream. The model has three stages, and each stage uses the results of
// the stages before it:
//
//   RecomputationFinder  which ops are launched again, and before which slots (recomputations.h)
//   AlgorithmChooser     the algorithm of each op, and the memory in use at each slot (algorithm_use.h)
//   StepTimer            when each copy runs, and how long the step takes (step_timer.h)
//
// Memory is counted as if there were no fragmentation. Addresses (placement.h) need only a few thousandths
// more.

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
  // The slots at which memory does not suffice. If there are any, the other members are not meaningful.
  std::vector<Shortage> shortages;
  std::uint32_t impossible_gap = kNone;  // a gap whose value cannot be made again; kNone if there is none

  double seconds = 0;            // from the start of a step to the next; infinite if longer than `longest`
  std::uint64_t host_bytes = 0;  // bytes offloaded

  bool feasible() const { return shortages.empty() && impossible_gap == kNone; }
};

// Use it from one thread. The problem must outlive it.
class StepModel {
 public:
  explicit StepModel(const Problem& problem);

  // Evaluates a step. `bytes` are for all that is not persistent. The fraction `slack` of the memory is left
  // free, except for ops that could not run otherwise, so that addresses are easier to find. The evaluation
  // stops if the step takes more than `longest` seconds. The functions below describe the last evaluation;
  // `decisions` must outlive all calls of these functions.
  Outcome evaluate(const Decisions& decisions, std::uint64_t bytes, double slack = 0,
                   double longest = std::numeric_limits<double>::infinity());

  // All functions below except relieve() require that the step was feasible and not too long.

  // Writes algorithms, transfers and recomputations to `plan`.
  void write(Plan& plan) const;
  double seconds() const { return timing_->seconds; }
  // The slot from which on there is memory for the next step's inputs. If there is no such slot, returns
  // Problem::load_slot(), since the places of the inputs may still be free.
  OpId next_load() const { return timing_->next_load; }
  // The algorithm of an op, as an index into Problem::choices().
  std::uint32_t choice(OpId op) const { return algorithms_->choice[op]; }
  // The slots at which more memory might make the step shorter. At such a slot, lack of memory has one of
  // three effects: an op uses a slower algorithm, a copy delays an op, or a prefetch starts late.
  std::vector<bool> tight() const;
  // The tight slots at which a copy, not the choice of an algorithm, lacked memory, in any order.
  const std::vector<OpId>& held_up() const { return timing_->held_up; }

  // Changes `decisions`, which must be those of the last evaluation and lack memory. Frees memory at each
  // slot of `shortages` before which ops are launched again. If a value is recomputed there before its own
  // next use, it is no longer kept until that use, but recomputed once more for it. If there is no such
  // value, one of the recomputed values, chosen randomly, is offloaded. Returns false if no op is launched
  // again before any of the slots.
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
