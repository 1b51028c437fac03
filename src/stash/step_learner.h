#pragma once
// Learns from a step that has ended: it is a new kind of step or the repetition of a known one, and gives a
// plan with the host memory that its next step takes.

#include "src/stash/host_blocks.h"
#include "src/stash/known_steps.h"
#include "src/stash/leaving_rules.h"
#include "src/stash/stash_notices.h"
#include "src/stash/step_under_way.h"

namespace vdnn::stash {

// Not synchronised.
class StepLearner {
 public:
  StepLearner(const LeavingRules& rules, HostBlocks& host, StashNotices& notices)
      : rules_(rules), host_(host), notices_(notices) {}

  // A step without tensors is none. `statistics`: its counts of steps and plans are raised.
  // `overlaps`: it ended at one of its StepBorders.
  void learn(const StepUnderWay& ended, bool overlaps, StashStatistics& statistics);
  void forget() { known_.forget(); }
  // The kinds that overlap.
  void forget_overlapping() { known_.forget_overlapping(); }
  // A step that is at a turn and does not go on with `next` like its kind, or another, ends there by what is
  // known.
  bool ends_before(const StepUnderWay& step, const StepTensor& next) const;

  // The kinds that the step goes like if `next` is its next tensor.
  AlikeKinds alike(const StepUnderWay& step, const StepTensor& next) const {
    return known_.going_on(step.alike(), step.handles().size(), next);
  }
  // As that of KnownSteps.
  const KnownStep* latest() const { return known_.latest(); }

 private:
  // Whether there is another plan.
  bool learn_repetition(const StepUnderWay& ended, StashStatistics& statistics);
  StepLimits limits_of(const StepUnderWay& ended) const;
  void share_host_memory(const StepUnderWay& ended, bool has_new_plan);

  const LeavingRules& rules_;
  HostBlocks& host_;
  StashNotices& notices_;
  KnownSteps known_;
  const KnownStep* repeated_before_ = nullptr;  // by the step before; it may be gone
};

}  // namespace vdnn::stash
