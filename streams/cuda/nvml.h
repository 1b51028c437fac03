#pragma once
// The driver's management library, which sees the card and not the process.

#include <cstdint>
#include <optional>
#include <string>

namespace vdnn {

// Bytes of memory that the GPU on this PCI bus ("0000:3b:00.0") has free or, where it is divided (MIG), its
// instance of this name ("MIG-" and the uuid). Nothing where there is no library, or it does not say.
std::optional<std::uint64_t> nvml_free_bytes(const char* bus_id, const std::string& instance);

}  // namespace vdnn
