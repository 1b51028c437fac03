#pragma once
// What an executor asks of the device pool to train by a schedule, as an allocation log: buffers that last,
// and one step.

#include "vdnn/allocation_log.h"
#include "vdnn/schedule.h"

namespace vdnn::bench {

// Streams are numbered as StreamRole has them.
AllocationLog allocations_of_step(const Schedule& schedule);

}  // namespace vdnn::bench
