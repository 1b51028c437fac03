#pragma once
// The driver's management library, which sees the card and not the process.

#include <cstdint>
#include <optional>
#include <string>

namespace vdnn {

// Free bytes of the GPU on this PCI bus ("0000:3b:00.0") or, if it is divided (MIG), of its instance of this
// name
// ("MIG-" and the uuid). Nothing if there is no library, or it does not report it.
std::optional<std::uint64_t> nvml_free_bytes(const char* bus_id, const std::string& instance);

}  // namespace vdnn
