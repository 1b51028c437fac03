#pragma once
// The driver's management library (NVML), which reports the memory of the card rather than of the process.

#include <cstdint>
#include <optional>
#include <string>

namespace vdnn {

// Free bytes of the GPU at PCI address `bus_id` ("0000:3b:00.0"). If the GPU is divided (MIG), the free
// bytes of its instance `instance` ("MIG-" and the UUID). Empty if NVML is missing or does not report the
// memory.
std::optional<std::uint64_t> nvml_free_bytes(const char* bus_id, const std::string& instance);

}  // namespace vdnn
