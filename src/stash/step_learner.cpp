#include "src/stash/step_learner.h"

#include <vector>

namespace vdnn::stash {

void StepLearner::learn(const StepUnderWay& ended, bool overlaps, StashStatistics& statistics) {
  if (ended.handles().empty()) {
    return;
  }
  ++statistics.steps;
  const bool repeats = ended.kind() != nullptr && is_same_course(ended.record(), ended.kind()->record);
  bool has_new_plan = true;
  if (repeats) {
    has_new_plan = learn_repetition(ended, statistics);
  } else {
    known_.learn(ended.record(), limits_of(ended), overlaps);
  }
  if (has_new_plan) {
    ++statistics.plans;
  }
  share_host_memory(ended, has_new_plan);
  repeated_before_ = repeats ? ended.kind() : nullptr;
}

bool StepLearner::ends_before(const StepUnderWay& step, const StepTensor& next) const {
  const StepRecord* const kind = step.kind() == nullptr ? nullptr : &step.kind()->record;
  const bool is_at_end = kind != nullptr && step.record().tensors.size() == kind->tensors.size() &&
                         step.record().events.size() >= kind->events.size();
  return known_.any_begins_with(next, !is_at_end);
}

bool StepLearner::learn_repetition(const StepUnderWay& ended, StashStatistics& statistics) {
  ++statistics.repeated_steps;
  statistics.late_when_repeated += ended.late();
  statistics.page_locks_when_repeated += host_.page_locks() - ended.page_locks_before();
  const bool has_new_plan = known_.repeat(ended.kind(), ended.record(), limits_of(ended), ended.peak_bytes());
  // The notice is given only for the plan of a repetition: the plan before it may be based on the program's
  // first step.
  if (const std::uint64_t needed = known_.latest()->plan.peak_bytes; rules_.exceeds_budget(needed)) {
    notices_.note_budget_exceeded(needed);
  }
  return has_new_plan;
}

StepLimits StepLearner::limits_of(const StepUnderWay& ended) const {
  StepLimits limits = rules_.limits_of(ended.record());
  limits.host_bytes = host_.limit_bytes();
  return limits;
}

// Locks a new plan's blocks here, so that its first step locks no page. A repetition may find too few blocks
// for three reasons. Other requests may use larger blocks that were counted for the plan; then blocks of the
// plan's own sizes are provided. Or other kinds of steps may hold the memory; then blocks are provided only
// if a kind repeats twice in a row, so that two kinds do not take memory from each other in turn. Or the
// system refused memory, perhaps while blocks were provided; then other blocks are planned within the lower
// limit.
void StepLearner::share_host_memory(const StepUnderWay& ended, bool has_new_plan) {
  const HostBlockCounts& needs = known_.latest()->plan.host_blocks;
  if (ended.refused() > 0) {
    host_.retry_refused();
  }
  const bool has_new_limit = follow_host_limit();
  const bool is_repeated_again = ended.kind() != nullptr && ended.kind() == repeated_before_;
  if (has_new_plan) {
    host_.provide(needs, HostBlocks::Fit::kAny);
  } else if (has_new_limit || host_.page_locks() > ended.page_locks_before() ||
             (ended.refused() > 0 && is_repeated_again)) {
    host_.provide(needs, HostBlocks::Fit::kOwnSize);
  }
  while (follow_host_limit()) {
    host_.provide(needs, HostBlocks::Fit::kOwnSize);
  }
  std::vector<const HostBlockCounts*> expected{&needs};
  for (const KnownStep& each : known_.all()) {
    if (each.repeats > 0) {
      expected.push_back(&each.plan.host_blocks);
    }
  }
  host_.end_step(needs, expected);
}

bool StepLearner::follow_host_limit() {
  const std::uint64_t limit = host_.limit_bytes();
  if (limit == planned_host_bytes_) {
    return false;
  }
  known_.plan_host_blocks(limit);
  planned_host_bytes_ = limit;
  return true;
}

}  // namespace vdnn::stash
