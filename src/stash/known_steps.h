#pragma once
// The kinds of steps that a program has made, each with its plan.

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "src/stash/learned_step.h"
#include "src/stash/step_plan.h"

namespace vdnn::stash {

struct KnownStep {
  StepRecord record;
  std::vector<StepRead> reads;  // read_order(record)
  std::vector<bool> leaves;     // by tensor
};

// Not synchronised. At most kMostKinds: the one that was not met for longest is forgotten.
class KnownSteps {
 public:
  static constexpr std::size_t kMostKinds = 8;

  // A kind that begins as `begun` and goes on with `next`: `current`, if it does, else the one that was met
  // last. Null: there is none.
  const KnownStep* find(const KnownStep* current, const std::vector<StepTensor>& begun,
                        const StepTensor& next) const;

  // A step was another one of this kind. Whether the kind has a new plan, since tensors were found to stay.
  bool repeat(const KnownStep* kind, const StepRecord& step, const StepLimits& limits);
  void learn(StepRecord step, const StepLimits& limits);
  void forget() { kinds_.clear(); }

  // The kind that was met last; null before the first.
  const KnownStep* latest() const { return kinds_.empty() ? nullptr : &kinds_.front(); }

 private:
  std::list<KnownStep> kinds_;  // the one that was met last is first
};

}  // namespace vdnn::stash
