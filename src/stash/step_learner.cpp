#include "src/stash/step_learner.h"

namespace vdnn::stash {

void StepLearner::learn(const StepUnderWay& ended, StashStatistics& statistics) {
  if (ended.handles().empty()) {
    return;
  }
  ++statistics.steps;
  const bool repeats = ended.kind() != nullptr && is_same_course(ended.record(), ended.kind()->record);
  bool has_new_plan = true;
  if (repeats) {
    has_new_plan = learn_repetition(ended, statistics);
  } else {
    known_.learn(ended.record(), rules_.limits_of(ended.record()));
  }
  if (has_new_plan) {
    ++statistics.plans;
    reserve_host_memory();
  }
}

bool StepLearner::learn_repetition(const StepUnderWay& ended, StashStatistics& statistics) {
  ++statistics.repeated_steps;
  statistics.late_when_repeated += ended.late();
  statistics.page_locks_when_repeated += host_.page_locks() - ended.page_locks_before();
  const bool has_new_plan =
      known_.repeat(ended.kind(), ended.record(), rules_.limits_of(ended.record()), ended.peak_bytes());
  // This plan knows the bytes in use of a step that is not the program's first.
  if (const std::uint64_t needed = known_.latest()->plan.peak_bytes; rules_.exceeds_budget(needed)) {
    notices_.note_budget_exceeded(needed);
  }
  return has_new_plan;
}

// So that the plan's first step locks no page.
void StepLearner::reserve_host_memory() {
  const KnownStep& latest = *known_.latest();
  for (const auto& [bytes, count] : host_blocks_of(latest.record, latest.plan.leaves)) {
    host_.reserve(bytes, count);
  }
}

}  // namespace vdnn::stash
