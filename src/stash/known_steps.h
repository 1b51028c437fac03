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
  bool overlaps = false;  // tensors of it are alive in the next step
};

inline constexpr std::size_t kMostKinds = 8;

// The kinds that a step has gone like so far, the one that was met last first.
class AlikeKinds {
 public:
  void add(const KnownStep& kind) { kinds_.at(count_++) = &kind; }
  bool is_empty() const { return count_ == 0; }
  const KnownStep* const* begin() const { return kinds_.data(); }
  const KnownStep* const* end() const { return kinds_.data() + count_; }
  // `current`, if it is one of them, else the one that was met last. Null: there is none.
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

// Not synchronised. At most kMostKinds: the one that was not met for longest is forgotten.
class KnownSteps {
 public:
  // Those of `so_far`, which a step of `begun` tensors has gone like, that go on with `next`; all kinds that
  // begin with it, where none has begun.
  AlikeKinds going_on(const AlikeKinds& so_far, std::size_t begun, const StepTensor& next) const;

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
