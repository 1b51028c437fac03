#include "streams/cuda/cuda_memory.h"

#include <limits>

#include "vdnn/size.h"

namespace vdnn {

CudaMemory::CudaMemory(CudaContext& context, std::uint64_t granule_bytes)
    : context_(context), space_(context.owner(), granule_bytes) {}

CudaMemory::~CudaMemory() {
  const CudaContext::Scope scope = context_.enter_anyway();
  space_.committed().visit({.begin = 0, .bytes = std::numeric_limits<std::uint64_t>::max()},
                           [this](AddressRange piece, const Protection* state) {
                             if (state != nullptr) {
                               unmap_anyway(piece);
                             }
                           });
  for (const AddressRange reservation : space_.reservations()) {
    context_.forget(context_.api().address_free(reservation));
  }
}

AddressRange CudaMemory::reserve(std::uint64_t bytes) {
  if (bytes == 0) {
    space_.refuse("a reservation of nothing", {});
  }
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  const std::uint64_t granule = space_.granule_bytes();
  AddressRange range{.begin = 0, .bytes = round_up(bytes, granule)};
  context_.check_memory(context_.api().address_reserve(range.begin, range.bytes, granule),
                        "cuMemAddressReserve", [&] { return MemoryShortage{.asked = range.bytes}; });
  try {
    space_.add(range);
  } catch (...) {
    context_.forget(context_.api().address_free(range));
    throw;
  }
  return range;
}

void CudaMemory::unreserve(AddressRange reservation) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_unused(reservation);
  context_.check(context_.api().address_free(reservation), "cuMemAddressFree",
                 format_size(reservation.bytes));
  space_.remove(reservation);
}

void CudaMemory::commit(AddressRange range) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_committable(range);
  space_.committed().assign(range, Protection::kAccessible);
  AddressRange mapped{.begin = range.begin, .bytes = 0};
  try {
    for (; mapped.bytes < range.bytes; mapped.bytes += space_.granule_bytes()) {
      map(granule_at(mapped.end()), range);
    }
    context_.check_memory(context_.api().memory_set_access(range, context_.ordinal()), "cuMemSetAccess",
                          [&] { return shortage_of(range); });
  } catch (...) {
    unmap_anyway(mapped);
    space_.committed().erase(range);  // as it was assigned: nothing is split, no memory is needed
    throw;
  }
}

void CudaMemory::map(AddressRange granule, AddressRange committing) {
  CudaApi& api = context_.api();
  const auto shortage = [&] { return shortage_of(committing); };
  std::uint64_t handle = 0;
  context_.check_memory(api.memory_create(handle, granule.bytes, context_.ordinal()), "cuMemCreate",
                        shortage);
  const CudaStatus mapped = api.memory_map(granule, handle);
  const CudaStatus released = api.memory_release(handle);
  if (mapped == CudaStatus::kSuccess && released != CudaStatus::kSuccess) {
    unmap_anyway(granule);
  }
  context_.check_memory(mapped, "cuMemMap", shortage);
  context_.check(released, "cuMemRelease", format_size(granule.bytes));
}

void CudaMemory::decommit(AddressRange range) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_decommittable(range);
  space_.committed().erase(range);
  for (std::uint64_t at = range.begin; at < range.end(); at += space_.granule_bytes()) {
    const AddressRange granule = granule_at(at);
    const CudaStatus status = context_.api().memory_unmap(granule);
    if (status != CudaStatus::kSuccess) {
      space_.committed().assign({.begin = at, .bytes = range.end() - at}, Protection::kAccessible);
    }
    context_.check(status, "cuMemUnmap", format_size(granule.bytes));
  }
}

bool CudaMemory::committed(AddressRange range) const {
  const std::lock_guard lock(mutex_);
  return space_.is_committed(range);
}

AddressRange CudaMemory::granule_at(std::uint64_t address) const {
  return {.begin = address, .bytes = space_.granule_bytes()};
}

void CudaMemory::unmap_anyway(AddressRange range) noexcept {
  for (std::uint64_t at = range.begin; at < range.end(); at += space_.granule_bytes()) {
    context_.forget(context_.api().memory_unmap(granule_at(at)));
  }
}

MemoryShortage CudaMemory::shortage_of(AddressRange committing) const {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  context_.forget(context_.api().memory_info(free, total));
  return {.asked = committing.bytes, .in_use = total - free, .budget = total, .would_have_fitted = free};
}

}  // namespace vdnn
