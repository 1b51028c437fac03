#pragma once
// A second lower bound on the time of a step, for little memory: while an op computes, its operands leave
// room for few of the values that the ops after it read. fetch_bound.cpp proves it. O(slots x window), more
// than Bound takes, so that it is for what is printed, not for the search.

#include <cstdint>

#include "src/plan/optimal/problem.h"

namespace vdnn::optimal {

// `device_bytes`: parameters included.
double fetch_bound_seconds(const Problem& problem, std::uint64_t device_bytes);

}  // namespace vdnn::optimal
