#include "streams/cuda/cuda_gpus.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace vdnn {

namespace {

std::string format_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string name_of(CudaContext& context, int ordinal) {
  return "cuda:" + std::to_string(ordinal) + " (" + info_of(context, ordinal).name + ")";
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

void require_ordinal(int ordinal, int count, const std::string& who) {
  if (ordinal < 0 || ordinal >= count) {
    throw InvalidArgument(who + ": there is no such GPU; the last of " + std::to_string(count) +
                          " is cuda:" + std::to_string(count - 1));
  }
}

}  // namespace

CudaDeviceInfo info_of(CudaContext& context, int ordinal) {
  CudaDeviceInfo info;
  context.check(context.api().device_info(info, ordinal), "cuDeviceGetAttribute",
                [ordinal] { return std::to_string(ordinal); });
  return info;
}

CudaMemoryKind memory_kind_of(const CudaContext& context, const CudaDeviceInfo& info) {
  return {.ordinal = context.ordinal(), .file_handles = info.file_handles, .rdma = info.rdma};
}

std::uint64_t granule_of(CudaContext& context, const CudaMemoryKind& kind) {
  std::uint64_t granule = 0;
  context.check(context.api().allocation_granularity(granule, kind), "cuMemGetAllocationGranularity");
  return std::bit_ceil(granule);
}

std::vector<int> peers_of(CudaContext& context) {
  const int count = require_gpus(context);
  std::vector<int> peers;
  for (int each = 0; each < count; ++each) {
    bool can = false;
    if (each != context.ordinal()) {
      context.check(context.api().can_access_peer(can, each, context.ordinal()), "cudaDeviceCanAccessPeer",
                    [each] { return std::to_string(each); });
    }
    if (can) {
      peers.push_back(each);
    }
  }
  return peers;
}

CardMemory memory_of(CudaContext& context) {
  CardMemory memory;
  context.check(context.api().memory_info(memory.free, memory.total), "cudaMemGetInfo");
  return memory;
}

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
  require_ordinal(context.ordinal(), require_gpus(context), context.owner());
}

void require_peers(CudaContext& context, std::span<const int> peers) {
  const int count = require_gpus(context);
  for (auto peer = peers.begin(); peer != peers.end(); ++peer) {
    const std::string who = context.owner() + ": peer cuda:" + std::to_string(*peer);
    require_ordinal(*peer, count, who);
    if (*peer == context.ordinal()) {
      throw InvalidArgument(who + " is the GPU itself");
    }
    if (std::find(peers.begin(), peer, *peer) != peer) {
      throw InvalidArgument(who + " is named twice");
    }
    bool can = false;
    context.check(context.api().can_access_peer(can, *peer, context.ordinal()), "cudaDeviceCanAccessPeer",
                  [&] { return std::to_string(*peer); });
    if (!can) {
      throw DeviceError(who + ": " + name_of(context, *peer) + " cannot touch memory of " +
                        name_of(context, context.ordinal()));
    }
  }
}

std::uint64_t free_bytes_of_gpu(CudaContext& context) {
  bool in_use = false;
  context.check(context.api().context_is_active(in_use, context.ordinal()), "cuDevicePrimaryCtxGetState");
  if (in_use) {
    const CudaContext::Scope scope = context.enter();
    return memory_of(context).free;
  }
  if (const std::optional<std::uint64_t> free = card_free_bytes(context)) {
    return *free;
  }
  std::uint64_t free = 0;
  context.check(context.api().gpu_free_bytes(free, context.ordinal()), "cuMemGetInfo",
                [&] { return std::to_string(context.ordinal()); });
  return free;
}

std::uint64_t bytes_taken_by(CudaContext& context, const std::function<void()>& begin) {
  const std::optional<std::uint64_t> before = card_free_bytes(context);
  begin();
  const std::optional<std::uint64_t> after = card_free_bytes(context);
  if (before && after) {
    return *before - std::min(*before, *after);
  }
  const CudaContext::Scope scope = context.enter();
  const CardMemory memory = memory_of(context);
  return memory.total - memory.free;
}

}  // namespace vdnn
