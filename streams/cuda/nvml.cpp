#include "streams/cuda/nvml.h"

#include "streams/cuda/loaded_library.h"

namespace vdnn {

namespace {

// The declarations of nvml.h, which a toolkit need not have. They have never changed.
using NvmlDevice = struct NvmlDeviceState*;
struct NvmlMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
constexpr unsigned kMigEnabled = 1;

}  // namespace

std::optional<std::uint64_t> nvml_free_bytes(const char* bus_id, const std::string& instance) {
  try {
    const cuda::LoadedLibrary library("libnvidia-ml.so.1");
    auto* const init = library.find<int (*)()>("nvmlInit_v2");
    auto* const shutdown = library.find<int (*)()>("nvmlShutdown");
    auto* const find = library.find<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
    auto* const mode_of = library.find<int (*)(NvmlDevice, unsigned*, unsigned*)>("nvmlDeviceGetMigMode");
    auto* const find_instance = library.find<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByUUID");
    auto* const ask = library.find<int (*)(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
    if (init() != 0) {
      return std::nullopt;
    }
    NvmlDevice device = nullptr;
    NvmlMemory memory;
    bool found = find(bus_id, &device) == 0;
    unsigned mode = 0;
    unsigned mode_to_come = 0;
    // The handle of a divided GPU (MIG) reports all instances together.
    if (found && mode_of(device, &mode, &mode_to_come) == 0 && mode == kMigEnabled) {
      found = find_instance(instance.c_str(), &device) == 0;
    }
    const bool told = found && ask(device, &memory) == 0;
    shutdown();
    return told ? std::optional<std::uint64_t>(memory.free) : std::nullopt;
  } catch (const DeviceError&) {
    return std::nullopt;  // NVML is not installed, or too old
  }
}

}  // namespace vdnn
