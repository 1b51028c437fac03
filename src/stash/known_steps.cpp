#include "src/stash/known_steps.h"

#include <algorithm>
#include <utility>

namespace vdnn::stash {

namespace {

bool goes_on_with(const KnownStep& kind, std::size_t index, const StepTensor& next) {
  return index < kind.record.tensors.size() && is_same_tensor(kind.record.tensors[index], next);
}

// Raises each event's known bytes in use to those of this step if these are higher. Returns whether any were
// raised.
bool raise_figures(std::vector<StepEvent>& known, const std::vector<StepEvent>& seen) {
  bool is_higher = false;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    is_higher = is_higher || seen[i].in_use_bytes > known[i].in_use_bytes;
    known[i].in_use_bytes = std::max(known[i].in_use_bytes, seen[i].in_use_bytes);
    known[i].at_event_bytes = std::max(known[i].at_event_bytes, seen[i].at_event_bytes);
  }
  return is_higher;
}

// Records until when the step's tensors were held. Returns whether any was held longer than in all earlier
// steps of its kind.
bool note_holders(std::vector<StepTensor>& known, const std::vector<StepTensor>& seen) {
  bool is_news = false;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    is_news = is_news || (seen[i].stays && !known[i].stays) || seen[i].held_until > known[i].held_until;
  }
  inherit_holders(seen, known);
  return is_news;
}

// Returns whether the plan changed.
bool plan_again(KnownStep& kind, const StepLimits& limits) {
  const StepPlan before = std::exchange(kind.plan, plan_step(kind.record, limits));
  return !is_same_course(before, kind.plan);
}

}  // namespace

AlikeKinds KnownSteps::going_on(const AlikeKinds& so_far, std::size_t begun, const StepTensor& next) const {
  AlikeKinds alike;
  const auto add = [&](const KnownStep& kind) {
    if (goes_on_with(kind, begun, next)) {
      alike.add(kind);
    }
  };
  if (begun == 0) {
    std::ranges::for_each(kinds_, add);
  } else {
    std::ranges::for_each(so_far, [&add](const KnownStep* kind) { add(*kind); });
  }
  return alike;
}

bool KnownSteps::repeat(const KnownStep* kind, const StepRecord& step, const StepLimits& limits,
                        std::uint64_t in_use_bytes) {
  const auto found = std::ranges::find_if(kinds_, [&](const KnownStep& each) { return &each == kind; });
  kinds_.splice(kinds_.begin(), kinds_, found);
  const bool is_first = found->repeats++ == 0;
  bool is_news = is_first;
  if (is_first) {
    found->record.events = step.events;
    found->record.nanoseconds = step.nanoseconds;
  } else if (limits.budget_bytes > 0 && in_use_bytes > limits.budget_bytes) {
    is_news = raise_figures(found->record.events, step.events);
  }
  is_news = note_holders(found->record.tensors, step.tensors) || is_news;
  return is_news && plan_again(*found, limits);
}

bool KnownSteps::any_begins_with(const StepTensor& tensor, bool overlapping) const {
  return std::ranges::any_of(kinds_, [&](const KnownStep& kind) {
    return (kind.overlaps || !overlapping) && goes_on_with(kind, 0, tensor);
  });
}

void KnownSteps::plan_host_blocks(std::uint64_t host_bytes) {
  for (KnownStep& kind : kinds_) {
    kind.plan.host_blocks = host_blocks_of(kind.record, kind.plan.leaves, host_bytes);
  }
}

void KnownSteps::learn(StepRecord step, const StepLimits& limits, bool overlaps) {
  StepPlan plan = plan_step(step, limits);
  kinds_.push_front({.record = std::move(step), .plan = std::move(plan), .overlaps = overlaps});
  if (kinds_.size() > kMostKinds) {
    kinds_.pop_back();
  }
}

}  // namespace vdnn::stash
