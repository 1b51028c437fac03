#pragma once
// A second lower bound on the time of a step, for little memory: while an op computes, its operands leave
// room for few of the values that the ops after it read. fetch_bound.cpp proves the bound. It costs O(slots x
// window), more than Bound, so only reports use it, not the search.

#include <cstdint>

#include "src/plan/optimal/problem.h"

namespace vdnn::optimal {

// `device_bytes` include parameters.
double fetch_bound_seconds(const Problem& problem, std::uint64_t device_bytes);

}  // namespace vdnn::optimal
