#pragma once
// The devices that --device can name: those of this machine and those that are simulated.

#include <functional>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "vdnn/gpu_system.h"

namespace vdnn {

// Lines of `vdnn devices --json` (docs/device.schema.json): cpu, then the GPUs of `gpus`, which may be null.
// `refused` is called with each GPU that cannot be used and the reason.
std::vector<nlohmann::ordered_json> present_devices(GpuSystem* gpus,
                                                    const std::function<void(const std::string&)>& refused);
// The simulated devices that the library knows.
std::vector<nlohmann::ordered_json> simulated_devices();

// Prints a table of the devices and the source of each figure.
void print_devices(std::ostream& out, const std::vector<nlohmann::ordered_json>& devices);

}  // namespace vdnn
