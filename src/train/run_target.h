#pragma once
// What `--device` and the budgets mean on this machine.

#include "vdnn/planned_run.h"

namespace vdnn {

// Throws InvalidArgument for a device that cannot be, DeviceError for a GPU that cannot be driven (with what
// is missing), OutOfMemory for a budget of more than it has free.
RunTarget resolve_target(const RunOptions& options);

}  // namespace vdnn
