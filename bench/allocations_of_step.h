#pragma once
// The requests of an executor to the device pool for a schedule, as an allocation log: persistent buffers,
// and one step.

#include "vdnn/allocation_log.h"
#include "vdnn/schedule.h"

namespace vdnn::bench {

// Streams are numbered by StreamRole.
AllocationLog allocations_of_step(const Schedule& schedule);

}  // namespace vdnn::bench
