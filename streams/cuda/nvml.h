#pragma once
// The driver's management library (NVML), which sees the card rather than the process.

#include <cstdint>
#include <optional>
#include <string>

namespace vdnn {

// Free bytes of the GPU at PCI address `bus_id` ("0000:3b:00.0"). If the GPU is divided (MIG), those of its
// instance `instance` ("MIG-" and the UUID). Nothing if NVML is missing or does not report them.
std::optional<std::uint64_t> nvml_free_bytes(const char* bus_id, const std::string& instance);

}  // namespace vdnn
