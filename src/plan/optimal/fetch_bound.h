#pragma once
// A second lower bound on the time of a step, for little memory. While an op computes, its operands leave
// space for only few of the values that the next ops read. fetch_bound.cpp proves the bound. Its computation
// takes O(slots x window), which is longer than for Bound. So only reports use it, not the search.

#include <cstdint>

#include "src/plan/optimal/problem.h"

namespace vdnn::optimal {

// Returns the bound in seconds. `device_bytes` include parameters.
double fetch_bound_seconds(const Problem& problem, std::uint64_t device_bytes);

}  // namespace vdnn::optimal
