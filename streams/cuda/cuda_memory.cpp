#include "streams/cuda/cuda_memory.h"

#include <algorithm>
#include <limits>
#include <string>

#include "streams/cuda/cuda_gpus.h"
#include "vdnn/size.h"

namespace vdnn {

CudaMemory::CudaMemory(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
                       std::span<const int> peers)
    : context_(context),
      virtual_memory_(info.virtual_memory),
      kind_(memory_kind_of(context, info)),
      users_{context.ordinal()},
      space_(context.owner(), granule_bytes) {
  users_.insert(users_.end(), peers.begin(), peers.end());
  if (!virtual_memory_) {
    std::ranges::for_each(peers, [this](int peer) { open_to(peer); });
  }
}

// It stays open: somebody else in the process may have asked for it, too, and CUDA does not count.
void CudaMemory::open_to(int peer) {
  const CudaContext::Scope scope = context_.enter(peer);
  const CudaStatus status = context_.api().enable_peer_access(context_.ordinal());
  if (status == CudaStatus::kPeerAccessAlreadyEnabled) {
    context_.forget(status);
    return;
  }
  context_.check(status, "cudaDeviceEnablePeerAccess", [this] { return std::to_string(context_.ordinal()); });
}

CudaMemory::~CudaMemory() {
  const CudaContext::Scope scope = context_.enter_anyway();
  space_.committed().visit({.begin = 0, .bytes = std::numeric_limits<std::uint64_t>::max()},
                           [this](AddressRange piece, const Protection* state) {
                             if (virtual_memory_ && state != nullptr) {
                               unmap_all(piece);
                             }
                           });
  std::ranges::for_each(left_, [this](AddressRange granule) { unmap(granule); });
  for (const AddressRange reservation : space_.reservations()) {
    context_.forget(give_back(reservation));
  }
}

AddressRange CudaMemory::reserve(std::uint64_t bytes) {
  if (bytes == 0) {
    space_.refuse("a reservation of nothing", {});
  }
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  const AddressRange range = take(round_up(bytes, space_.granule_bytes()));
  try {
    space_.add(range);
  } catch (...) {
    context_.forget(give_back(range));
    throw;
  }
  return range;
}

AddressRange CudaMemory::take(std::uint64_t bytes) {
  CudaApi& api = context_.api();
  AddressRange range{.begin = 0, .bytes = bytes};
  if (virtual_memory_) {
    context_.check_memory(api.address_reserve(range.begin, bytes, space_.granule_bytes()),
                          "cuMemAddressReserve", [&] { return MemoryShortage{.asked = bytes}; });
    return range;
  }
  context_.check_memory(api.malloc(range.begin, bytes), "cudaMalloc", [&] { return shortage_of(range); });
  if (range.begin % space_.granule_bytes() != 0) {
    context_.forget(give_back(range));
    throw DeviceError(context_.owner() + ": cudaMalloc(" + format_size(bytes) + ") gave memory that " +
                      format_size(space_.granule_bytes()) + " do not divide");
  }
  return range;
}

CudaStatus CudaMemory::give_back(AddressRange reservation) {
  CudaApi& api = context_.api();
  return virtual_memory_ ? api.address_free(reservation) : api.free(reservation.begin);
}

void CudaMemory::unreserve(AddressRange reservation) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_unused(reservation);
  unmap_left(reservation);
  context_.check(give_back(reservation), virtual_memory_ ? "cuMemAddressFree" : "cudaFree",
                 [&] { return format_size(reservation.bytes); });
  space_.remove(reservation);
}

void CudaMemory::commit(AddressRange range) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_committable(range);
  unmap_left(range);
  left_.reserve(left_.size() + range.bytes / space_.granule_bytes());
  space_.committed().assign(range, Protection::kAccessible);
  if (!virtual_memory_) {
    return;
  }
  try {
    map_all(range);
  } catch (...) {
    space_.committed().erase(range);  // as it was assigned: nothing is split, no memory is needed
    throw;
  }
}

void CudaMemory::map_all(AddressRange range) {
  AddressRange mapped{.begin = range.begin, .bytes = 0};
  try {
    for (; mapped.bytes < range.bytes; mapped.bytes += space_.granule_bytes()) {
      map(granule_at(mapped.end()), range);
    }
    context_.check_memory(context_.api().memory_set_access(range, users_), "cuMemSetAccess",
                          [&] { return shortage_of(range); });
  } catch (...) {
    roll_back(mapped);
    throw;
  }
}

void CudaMemory::map(AddressRange granule, AddressRange committing) {
  CudaApi& api = context_.api();
  const auto shortage = [&] { return shortage_of(committing); };
  std::uint64_t handle = 0;
  context_.check_memory(api.memory_create(handle, granule.bytes, kind_), "cuMemCreate", shortage);
  const CudaStatus mapped = api.memory_map(granule, handle);
  const CudaStatus released = api.memory_release(handle);
  if (mapped == CudaStatus::kSuccess && released != CudaStatus::kSuccess) {
    roll_back(granule);
  }
  context_.check_memory(mapped, "cuMemMap", shortage);
  context_.check(released, "cuMemRelease", [&] { return format_size(granule.bytes); });
}

void CudaMemory::decommit(AddressRange range) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_decommittable(range);
  space_.committed().erase(range);
  if (!virtual_memory_) {
    return;
  }
  for (std::uint64_t at = range.begin; at < range.end(); at += space_.granule_bytes()) {
    const AddressRange granule = granule_at(at);
    const CudaStatus status = context_.api().memory_unmap(granule);
    if (status != CudaStatus::kSuccess) {
      space_.committed().assign({.begin = at, .bytes = range.end() - at}, Protection::kAccessible);
    }
    context_.check(status, "cuMemUnmap", [&] { return format_size(granule.bytes); });
  }
}

bool CudaMemory::committed(AddressRange range) const {
  const std::lock_guard lock(mutex_);
  return space_.is_committed(range);
}

AddressRange CudaMemory::granule_at(std::uint64_t address) const {
  return {.begin = address, .bytes = space_.granule_bytes()};
}

bool CudaMemory::unmap(AddressRange granule) noexcept {
  const CudaStatus status = context_.api().memory_unmap(granule);
  context_.forget(status);
  return status == CudaStatus::kSuccess;
}

void CudaMemory::unmap_all(AddressRange range) noexcept {
  for (std::uint64_t at = range.begin; at < range.end(); at += space_.granule_bytes()) {
    unmap(granule_at(at));
  }
}

void CudaMemory::roll_back(AddressRange range) noexcept {
  for (std::uint64_t at = range.begin; at < range.end(); at += space_.granule_bytes()) {
    if (!unmap(granule_at(at))) {
      left_.push_back(granule_at(at));
    }
  }
}

void CudaMemory::unmap_left(AddressRange range) {
  const auto inside = [range](AddressRange granule) { return range.contains(granule); };
  for (auto it = std::ranges::find_if(left_, inside); it != left_.end();
       it = std::find_if(it, left_.end(), inside)) {
    context_.check(context_.api().memory_unmap(*it), "cuMemUnmap", [it] { return format_size(it->bytes); });
    it = left_.erase(it);
  }
}

MemoryShortage CudaMemory::shortage_of(AddressRange committing) const {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  context_.forget(context_.api().memory_info(free, total));
  return {.asked = committing.bytes, .in_use = total - free, .budget = total, .would_have_fitted = free};
}

}  // namespace vdnn
