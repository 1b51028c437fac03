#pragma once
// Learns from an ended step, which is new or repeats a known kind. Plans the next step of that kind, and
// provides its host memory.

#include <cstdint>

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
      : rules_(rules), host_(host), notices_(notices), planned_host_bytes_(host.limit_bytes()) {}

  // Learns from `ended`, unless it has no tensors. Counts steps and plans in `statistics`. `overlaps`:
  // StepBorders ended the step.
  void learn(const StepUnderWay& ended, bool overlaps, StashStatistics& statistics);
  void forget() { known_.forget(); }
  // Forgets the kinds that overlap.
  void forget_overlapping() { known_.forget_overlapping(); }
  // Whether a step at a turn ends before `next`, which continues none of the step's kinds. The step ends if
  // it has completed its own kind and `next` begins a kind, or if `next` begins an overlapping kind.
  bool ends_before(const StepUnderWay& step, const StepTensor& next) const;

  // The kinds that the step matches if `next` is its next tensor.
  AlikeKinds alike(const StepUnderWay& step, const StepTensor& next) const {
    return known_.going_on(step.alike(), step.handles().size(), next);
  }
  // See KnownSteps::latest().
  const KnownStep* latest() const { return known_.latest(); }

 private:
  // Returns whether the plan changed.
  bool learn_repetition(const StepUnderWay& ended, StashStatistics& statistics);
  StepLimits limits_of(const StepUnderWay& ended) const;
  void share_host_memory(const StepUnderWay& ended, bool has_new_plan);
  // Plans the host blocks of all kinds anew if the limit of host memory changed. Returns whether it did.
  bool follow_host_limit();

  const LeavingRules& rules_;
  HostBlocks& host_;
  StashNotices& notices_;
  KnownSteps known_;
  std::uint64_t planned_host_bytes_;            // the limit of host memory that all plans keep
  const KnownStep* repeated_before_ = nullptr;  // by the previous step; may dangle, so it is only compared
};

}  // namespace vdnn::stash
