#pragma once
// Resolves the device and the budgets of RunOptions on this machine.

#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// Throws InvalidArgument for an impossible device and OutOfMemory for a budget above the GPU's free memory.
// Throws DeviceError for a GPU that cannot be driven; the message names the missing part.
RunTarget resolve_target(const RunOptions& options);

// The device profile whose rates are used in predictions for a GPU.
struct GpuRates {
  std::string profile;  // the name to pass to sim_profile()
  bool known = false;   // whether it is this GPU's own profile; otherwise another GPU's
};
// `gpu` is the vendor's name of the GPU.
GpuRates rates_of_gpu(const std::string& gpu);

}  // namespace vdnn
