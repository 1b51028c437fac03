#include "streams/cuda/cuda_gpus.h"

#include <algorithm>
#include <future>
#include <optional>

namespace vdnn {

namespace {

std::string format_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::optional<std::uint64_t> card_free_bytes(CudaContext& context) {
  std::uint64_t free = 0;
  const CudaStatus asked = context.api().card_free_bytes(free, context.ordinal());
  if (asked == CudaStatus::kNotSupported) {
    context.forget(asked);
    return std::nullopt;
  }
  context.check(asked, "nvmlDeviceGetMemoryInfo");
  return free;
}

}  // namespace

std::string driver_version_of(CudaContext& context) {
  int driver = 0;
  context.check(context.api().driver_version(driver), "cudaDriverGetVersion");
  return format_version(driver);
}

int require_gpus(CudaContext& context) {
  CudaApi& api = context.api();
  int driver = 0;
  context.check(api.driver_version(driver), "cudaDriverGetVersion");
  if (driver == 0) {
    throw DeviceError(context.owner() + ": no CUDA driver is installed (libcuda.so.1 was not found)");
  }
  int count = 0;
  const CudaStatus counted = api.device_count(count);
  if (counted == CudaStatus::kInsufficientDriver) {
    context.forget(counted);
    throw DeviceError(context.owner() + ": the CUDA driver is too old: it is for CUDA " +
                      format_version(driver) + ", this build for " + format_version(api.runtime_version()));
  }
  if (counted == CudaStatus::kNoDevice || (counted == CudaStatus::kSuccess && count == 0)) {
    context.forget(counted);
    throw DeviceError(context.owner() + ": there is a CUDA driver, but no GPU that it can see");
  }
  context.check(counted, "cudaGetDeviceCount");
  if (const std::string missing = api.why_missing(); !missing.empty()) {
    throw DeviceError(context.owner() + ": " + missing);
  }
  return count;
}

void require_gpu(CudaContext& context) {
  const int count = require_gpus(context);
  if (context.ordinal() < 0 || context.ordinal() >= count) {
    throw InvalidArgument(context.owner() + ": there is no such GPU; the last of " + std::to_string(count) +
                          " is cuda:" + std::to_string(count - 1));
  }
}

std::uint64_t free_bytes_of_gpu(CudaContext& context) {
  // On a thread of its own, whose GPU nobody has to put back: setting the one that was, CUDA would begin to
  // use that.
  const auto ask = [&context] {
    CudaApi& api = context.api();
    bool in_use = false;
    context.check(api.context_is_active(in_use, context.ordinal()), "cuDevicePrimaryCtxGetState");
    context.check(api.set_device(context.ordinal()), "cudaSetDevice", std::to_string(context.ordinal()));
    std::uint64_t free = 0;
    std::uint64_t total = 0;
    context.check(api.memory_info(free, total), "cudaMemGetInfo");
    if (!in_use) {
      context.check(api.device_reset(), "cudaDeviceReset");
    }
    return free;
  };
  return std::async(std::launch::async, ask).get();
}

std::uint64_t bytes_taken_by(CudaContext& context, const std::function<void()>& begin) {
  const std::optional<std::uint64_t> before = card_free_bytes(context);
  begin();
  const std::optional<std::uint64_t> after = card_free_bytes(context);
  if (before && after) {
    return *before - std::min(*before, *after);
  }
  const CudaContext::Scope scope = context.enter();
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  context.check(context.api().memory_info(free, total), "cudaMemGetInfo");
  return total - free;
}

}  // namespace vdnn
