// The driver's management library (NVML) with one GPU, and only those functions that vdnn calls or PyTorch
// looks up. Depending on the environment, the GPU is divided into instances (MIG). The GPU's own handle then
// reports all of them together.
//
//   VDNN_STAND_IN_MIG=1  the GPU is divided
//   VDNN_STAND_IN_MIG=0  the GPU can be divided, but is not
//   otherwise            the GPU cannot be divided

#include <string>
#include <string_view>

#include "src/base/environment.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;

constexpr unsigned long long kGiB = 1ULL << 30U;

// The PCI address of the stand-in runtime's first GPU. Programs write its domain, the first number, with four
// digits or eight.
constexpr std::string_view kFirstOfRuntime = "0000:01:00.0";

struct Device {
  unsigned long long total;
  unsigned long long free;
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

constinit Device gpu{.total = 80 * kGiB, .free = 70 * kGiB};
constinit Device instance{.total = 10 * kGiB, .free = 9 * kGiB};
constinit int users = 0;

std::string mig() {
  return vdnn::environment("VDNN_STAND_IN_MIG").value_or("");
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++users;
  return kSuccess;
}
int nvmlShutdown() {
  if (users == 0) {
    return kUninitialized;
  }
  --users;
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device** device) {
  if (users == 0) {
    return kUninitialized;
  }
  *device = &gpu;
  const std::string_view id(bus_id);
  return id == "0000:3b:00.0" || id.ends_with(kFirstOfRuntime) ? kSuccess : kNotFound;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  if (users == 0) {
    return kUninitialized;
  }
  *device = &instance;
  return mig() == "1" && std::string_view(uuid) == "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f" ? kSuccess
                                                                                              : kNotFound;
}
int nvmlDeviceGetMigMode(Device* device, unsigned* mode, unsigned* mode_to_come) {
  if (users == 0) {
    return kUninitialized;
  }
  if (device != &gpu) {
    return kInvalidArgument;
  }
  if (mig().empty()) {
    return kNotSupported;
  }
  *mode = mig() == "1" ? 1 : 0;
  *mode_to_come = *mode;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(const Device* device, Memory* memory) {
  if (users == 0) {
    return kUninitialized;
  }
  *memory = {.total = device->total, .free = device->free, .used = device->total - device->free};
  return kSuccess;
}

// --- functions that PyTorch must find
int nvmlDeviceGetComputeRunningProcesses(const Device*, unsigned* count, void*) {
  *count = 0;
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}
int nvmlDeviceGetGpuFabricInfoV(const Device*, void*) {
  return kNotSupported;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(const Device*, unsigned, void*) {
  return kNotSupported;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const Device*, unsigned, void*) {
  return kNotSupported;
}

}  // extern "C"
