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
  StepPlan plan;
  std::uint64_t repeats = 0;
  bool overlaps = false;  // tensors of it are alive in the next step
};

// Not synchronised. At most kMostKinds: the one that was not met for longest is forgotten.
class KnownSteps {
 public:
  static constexpr std::size_t kMostKinds = 8;

  // A kind that begins as `begun` and goes on with `next`: `current`, if it does, else the one that was met
  // last. Null: there is none.
  const KnownStep* find(const KnownStep* current, const std::vector<StepTensor>& begun,
                        const StepTensor& next) const;

  // `step` was another one of this kind, in which `in_use_bytes` were in use at most, as the caller told
  // them. Whether the kind has another plan now. The first step of a program makes what stays (the
  // optimizer's state, gradients), so the figures of the first repetition take the place of the first step's.
  // Later ones count only where the budget was not kept: a static network has one plan then.
  bool repeat(const KnownStep* kind, const StepRecord& step, const StepLimits& limits,
              std::uint64_t in_use_bytes);
  void learn(StepRecord step, const StepLimits& limits, bool overlaps);
  // Whether a kind begins with `tensor`; `overlapping`: one that overlaps.
  bool any_begins_with(const StepTensor& tensor, bool overlapping) const;
  void forget() { kinds_.clear(); }
  void forget_overlapping() {
    kinds_.remove_if([](const KnownStep& kind) { return kind.overlaps; });
  }

  const std::list<KnownStep>& all() const { return kinds_; }  // the one that was met last is first
  // The kind that was met last; null before the first.
  const KnownStep* latest() const { return kinds_.empty() ? nullptr : &kinds_.front(); }

 private:
  std::list<KnownStep> kinds_;  // the one that was met last is first
};

}  // namespace vdnn::stash
