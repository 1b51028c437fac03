#pragma once
// The greedy choice of algorithms that policy `dyn` makes (plan_search.h).

#include <cstdint>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// By op: the device bytes that are in use while the op runs, without its workspace. Allocations and releases
// are counted in the order of `schedule`, without fragmentation. If an op runs more than once, its largest
// figure counts.
std::vector<std::uint64_t> bytes_beside_workspace(const Tape& tape, const Schedule& schedule);

// By op: the first algorithm whose workspace is within the limit of `options` and fits into `device_bytes`
// together with `beside` (bytes_beside_workspace()). If no algorithm fits, the algorithm with the least
// workspace.
std::vector<std::uint32_t> greedy_algorithms(const Tape& tape, const PlanOptions& options,
                                             const std::vector<std::uint64_t>& beside,
                                             std::uint64_t device_bytes);

}  // namespace vdnn
