#pragma once
// The kinds of steps that a program has made, each with its plan.

#include <algorithm>
#include <array>
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
  bool overlaps = false;  // whether some of its tensors are alive in the next step
};

inline constexpr std::size_t kMostKinds = 8;

// The kinds that a step matches so far, the latest first.
class AlikeKinds {
 public:
  void add(const KnownStep& kind) { kinds_.at(count_++) = &kind; }
  bool is_empty() const { return count_ == 0; }
  const KnownStep* const* begin() const { return kinds_.data(); }
  const KnownStep* const* end() const { return kinds_.data() + count_; }
  // Returns `current` if it is one of these kinds, else the latest; null if there is none.
  const KnownStep* best(const KnownStep* current) const {
    if (is_empty()) {
      return nullptr;
    }
    return std::find(begin(), end(), current) != end() ? current : kinds_.front();
  }

 private:
  std::array<const KnownStep*, kMostKinds> kinds_{};
  std::size_t count_ = 0;
};

// Not synchronised. Keeps at most kMostKinds kinds: a new kind replaces the kind that was met least recently.
class KnownSteps {
 public:
  // Returns the kinds among `so_far` whose tensor after the first `begun` tensors is `next`. If `begun` is 0,
  // returns all kinds that begin with `next`.
  AlikeKinds going_on(const AlikeKinds& so_far, std::size_t begun, const StepTensor& next) const;

  // Records that `step` repeated this kind with a reported peak of `in_use_bytes`. Returns whether the kind's
  // plan changed. A program's first step allocates memory that it keeps (the optimizer's state, gradients).
  // So the figures of the first repetition replace the figures of the first step. Later figures count only if
  // the step exceeded the budget, so that a static network keeps one plan.
  bool repeat(const KnownStep* kind, const StepRecord& step, const StepLimits& limits,
              std::uint64_t in_use_bytes);
  void learn(StepRecord step, const StepLimits& limits, bool overlaps);
  // Whether any kind begins with `tensor`. If `overlapping`, only kinds that overlap count.
  bool any_begins_with(const StepTensor& tensor, bool overlapping) const;
  // Plans the host blocks of all kinds anew, within `host_bytes`.
  void plan_host_blocks(std::uint64_t host_bytes);
  void forget() { kinds_.clear(); }
  void forget_overlapping() {
    kinds_.remove_if([](const KnownStep& kind) { return kind.overlaps; });
  }

  const std::list<KnownStep>& all() const { return kinds_; }  // the latest first
  // The kind met last; null if there is none.
  const KnownStep* latest() const { return kinds_.empty() ? nullptr : &kinds_.front(); }

 private:
  std::list<KnownStep> kinds_;  // the latest first
};

}  // namespace vdnn::stash
