#include "src/stash/leaving_rules.h"

#include <algorithm>

namespace vdnn::stash {

namespace {

// Options may have any value; real amounts of memory are far below this bound.
std::uint64_t bounded(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 60;
  return std::min(bytes, kMost);
}

}  // namespace

std::uint64_t LeavingRules::excess(const StepUnderWay& step, std::uint64_t in_use_bytes,
                                   std::uint64_t flight_bytes, std::uint64_t named_bytes) const {
  if (step.kind() != nullptr || options_.budget_bytes == 0) {
    return 0;  // a plan decides, or every tensor leaves at its save
  }
  // A tensor that leaves stays on the device until its copy is released. Late fetches bring tensors back one
  // at a time, so the budget must have memory for the largest tensor.
  const std::uint64_t wanted = bounded(in_use_bytes) + bounded(flight_limit(step)) + step.largest();
  const std::uint64_t allowed = bounded(options_.budget_bytes) + flight_bytes + named_bytes;
  return wanted > allowed ? wanted - allowed : 0;
}

StepLimits LeavingRules::limits_of(const StepRecord& step) const {
  const std::uint64_t two_largest = two_largest_bytes(step);
  return {.budget_bytes = options_.budget_bytes,
          .ahead_bytes = options_.ahead_bytes.value_or(two_largest),
          .flight_bytes = flight_option(two_largest)};
}

}  // namespace vdnn::stash
