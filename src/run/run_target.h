#pragma once
// Resolves the device and the budgets of RunOptions on this machine.

#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// Throws InvalidArgument for a device that cannot be, DeviceError for a GPU that cannot be driven (with what
// is missing), OutOfMemory for a budget of more than it has free.
RunTarget resolve_target(const RunOptions& options);

// The device profile whose rates predictions for a GPU use.
struct GpuRates {
  std::string profile;  // for sim_profile()
  bool known = false;   // false: it stands in, since there is no profile of this GPU
};
// `gpu` as its maker calls it.
GpuRates rates_of_gpu(const std::string& gpu);

}  // namespace vdnn
