#pragma once
// Resolves the device and the budgets of RunOptions on this machine.

#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// Throws InvalidArgument for an impossible device and OutOfMemory for a budget above the GPU's free memory.
// Throws DeviceError, which names the missing part, for a GPU that cannot be driven.
RunTarget resolve_target(const RunOptions& options);

// The device profile whose rates predictions for a GPU use.
struct GpuRates {
  std::string profile;  // for sim_profile()
  bool known = false;   // false: another GPU's profile, since this GPU has none
};
// `gpu` is the name that the vendor uses.
GpuRates rates_of_gpu(const std::string& gpu);

}  // namespace vdnn
