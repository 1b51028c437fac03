#pragma once
// The greedy choice of algorithms by `dyn` (plan_search.h).

#include <cstdint>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// By op: the device bytes in use besides its workspace while it runs, in the order in which `schedule`
// allocates and releases. Fragmentation is left out. An op that runs more than once has its largest figure.
std::vector<std::uint64_t> bytes_beside_workspace(const Tape& tape, const Schedule& schedule);

// By op: the first algorithm whose workspace obeys the limit of `options` and fits into `device_bytes`
// together with `beside` (bytes_beside_workspace()). If none does, the one with the least workspace.
std::vector<std::uint32_t> greedy_algorithms(const Tape& tape, const PlanOptions& options,
                                             const std::vector<std::uint64_t>& beside,
                                             std::uint64_t device_bytes);

}  // namespace vdnn
