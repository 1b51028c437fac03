#include "streams/cuda/nvml.h"

#include "streams/cuda/loaded_library.h"

namespace vdnn {

namespace {

// As nvml.h declares them, which toolkits need not have; they have been the same since they are there.
using NvmlDevice = struct NvmlDeviceState*;
struct NvmlMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

}  // namespace

std::optional<std::uint64_t> nvml_free_bytes(const char* bus_id) {
  try {
    const cuda::LoadedLibrary library("libnvidia-ml.so.1");
    auto* const init = library.find<int (*)()>("nvmlInit_v2");
    auto* const shutdown = library.find<int (*)()>("nvmlShutdown");
    auto* const find = library.find<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
    auto* const ask = library.find<int (*)(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
    if (init() != 0) {
      return std::nullopt;
    }
    NvmlDevice device = nullptr;
    NvmlMemory memory;
    const bool told = find(bus_id, &device) == 0 && ask(device, &memory) == 0;
    shutdown();
    return told ? std::optional<std::uint64_t>(memory.free) : std::nullopt;
  } catch (const DeviceError&) {
    return std::nullopt;  // not installed, or older than all of them
  }
}

}  // namespace vdnn
