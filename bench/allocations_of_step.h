#pragma once
// The requests that an executor makes to the device pool for a schedule: an allocation log of the persistent
// buffers and of one step.

#include "vdnn/allocation_log.h"
#include "vdnn/schedule.h"

namespace vdnn::bench {

// Streams are numbered by StreamRole.
AllocationLog allocations_of_step(const Schedule& schedule);

}  // namespace vdnn::bench
