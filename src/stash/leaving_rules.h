#pragma once
// Rules for which tensors leave, and how wide the windows are. In a step that matches a known kind, the plan
// decides. A step without a plan keeps its tensors until the bytes in use are close to the budget. Then the
// oldest tensors leave first.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/stash/step_plan.h"
#include "src/stash/step_under_way.h"

namespace vdnn::stash {

class LeavingRules {
 public:
  explicit LeavingRules(const StashOptions& options) : options_(options) {}

  // Whether tensor `index` of a step that matches these kinds leaves at its save. If several kinds match, the
  // tensor leaves if it leaves in any of their plans, since it may be too late to leave once only one kind
  // still matches.
  bool should_leave(const AlikeKinds& alike, std::size_t index) const {
    return alike.is_empty() ? options_.budget_bytes == 0
                            : std::ranges::any_of(
                                  alike, [index](const KnownStep* kind) { return kind->plan.leaves[index]; });
  }
  // The bound on the bytes of copies in flight. The plan sets this bound. Without a plan, the bound is at
  // most the bytes of the step's two largest tensors so far, since a wider window would keep sources for
  // which the budget has no memory.
  std::uint64_t flight_limit(const StepUnderWay& step) const {
    const std::uint64_t two_largest = step.two_largest();
    return step.kind() != nullptr ? step.kind()->plan.flight_bytes
                                  : std::min(flight_option(two_largest), two_largest);
  }
  // The bytes that must leave in addition to the copies in flight and to the tensors that the current call of
  // leaving() has already selected (`named_bytes`).
  std::uint64_t excess(const StepUnderWay& step, std::uint64_t in_use_bytes, std::uint64_t flight_bytes,
                       std::uint64_t named_bytes) const;
  // The limits for a plan of this step.
  StepLimits limits_of(const StepRecord& step) const;
  bool exceeds_budget(std::uint64_t bytes) const {
    return options_.budget_bytes > 0 && bytes > options_.budget_bytes;
  }

 private:
  std::uint64_t flight_option(std::uint64_t two_largest) const {
    return options_.release_at_put ? 0 : options_.flight_bytes.value_or(two_largest);
  }

  const StashOptions options_;
};

}  // namespace vdnn::stash
