#pragma once
// Which tensors leave, and how far the windows go. A plan decides where a step goes like a known one. A step
// without a plan keeps its tensors while the budget is far; as it is approached, the oldest leave first.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/stash/step_plan.h"
#include "src/stash/step_under_way.h"

namespace vdnn::stash {

class LeavingRules {
 public:
  explicit LeavingRules(const StashOptions& options) : options_(options) {}

  // Whether tensor `index` of a step that goes like these kinds leaves with its save. While several kinds
  // have gone alike it leaves if it does so by any of their plans: what stays cannot be made up for once it
  // is known which kind it is.
  bool should_leave(const AlikeKinds& alike, std::size_t index) const {
    return alike.is_empty() ? options_.budget_bytes == 0
                            : std::ranges::any_of(
                                  alike, [index](const KnownStep* kind) { return kind->plan.leaves[index]; });
  }
  // The bound on bytes that are on their way out. The plan sets it. A step without one goes by its two
  // largest tensors so far, since a wider window would keep sources that the budget has no room for.
  std::uint64_t flight_limit(const StepUnderWay& step) const {
    const std::uint64_t two_largest = step.two_largest();
    return step.kind() != nullptr ? step.kind()->plan.flight_bytes
                                  : std::min(flight_option(two_largest), two_largest);
  }
  // How many bytes have to leave beyond those in flight and those that have been named.
  std::uint64_t excess(const StepUnderWay& step, std::uint64_t in_use_bytes, std::uint64_t flight_bytes,
                       std::uint64_t named_bytes) const;
  // For a plan of this step.
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
