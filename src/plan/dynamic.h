#pragma once
// The greedy choice of `dyn` (plan_search.h), by itself.

#include <cstdint>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// Device bytes that lie beside each op's workspace while it runs, in the order in which `schedule` allocates
// and releases: what a memory without gaps would hold. An op that runs more than once counts at its worst.
std::vector<std::uint64_t> bytes_beside_workspace(const Tape& tape, const Schedule& schedule);

// For each op the first algorithm whose workspace fits into `device_bytes` with what lies beside it (of
// bytes_beside_workspace()) and obeys the limit of `options`; where none does, the one with the least.
std::vector<std::uint32_t> greedy_algorithms(const Tape& tape, const PlanOptions& options,
                                             const std::vector<std::uint64_t>& beside,
                                             std::uint64_t device_bytes);

}  // namespace vdnn
