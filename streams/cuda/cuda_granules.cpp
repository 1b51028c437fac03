#include "streams/cuda/cuda_granules.h"

#include <iterator>
#include <string>
#include <utility>

#include "streams/cuda/cuda_gpus.h"
#include "vdnn/size.h"

namespace vdnn {

CudaGranules::CudaGranules(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
                           std::span<const int> peers)
    : context_(context),
      granule_bytes_(granule_bytes),
      virtual_memory_(info.virtual_memory),
      kind_(memory_kind_of(context, info)),
      users_{context.ordinal()} {
  users_.insert(users_.end(), peers.begin(), peers.end());
}

CudaGranules::~CudaGranules() {
  const CudaContext::Scope scope = context_.enter_anyway();
  for (auto& [begin, reservation] : reservations_) {
    if (reservation.left == 0) {
      give_back_all(reservation);
    }
  }
}

bool CudaGranules::give_back_all(Reservation& reservation) noexcept {
  bool given = true;
  const auto note = [&](CudaStatus status) {
    context_.forget(status);
    given = given && status == CudaStatus::kSuccess;
  };
  for (std::uint64_t at = reservation.range.begin; at < reservation.range.end(); at += granule_bytes_) {
    if (mapped_at(reservation, at)) {
      note(unmap_one(reservation, at));
    }
  }
  note(give_back(reservation.range));
  return given;
}

void CudaGranules::leave(AddressRange reservation) noexcept {
  const std::lock_guard lock(mutex_);
  reservation_of(reservation).left = ++last_left_;
}

void CudaGranules::give_back_left(std::uint64_t last) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto next = reservations_.begin(); next != reservations_.end();) {
    const auto each = next++;
    const std::uint64_t left = each->second.left;
    if (left != 0 && left <= last && give_back_all(each->second)) {
      reservations_.erase(each);
    }
  }
}

AddressRange CudaGranules::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Reservation reservation{.range = {.begin = 0, .bytes = round_up(bytes, granule_bytes_)}, .mapped = {}};
  AddressRange& range = reservation.range;
  reservation.mapped.resize(range.bytes / granule_bytes_);
  const auto short_of = [&] { return shortage(range.bytes); };
  CudaApi& api = context_.api();
  if (virtual_memory_) {
    context_.check_memory(api.address_reserve(range.begin, range.bytes, granule_bytes_),
                          "cuMemAddressReserve", short_of);
  } else {
    context_.check_memory(api.malloc(range.begin, range.bytes), "cudaMalloc", short_of);
  }
  const AddressRange reserved = range;
  try {
    reservations_.emplace(reserved.begin, std::move(reservation));
  } catch (...) {
    context_.forget(give_back(reserved));
    throw;
  }
  return reserved;
}

void CudaGranules::unreserve(AddressRange reservation) {
  const std::lock_guard lock(mutex_);
  unmap_strays();
  context_.check(give_back(reservation), virtual_memory_ ? "cuMemAddressFree" : "cudaFree",
                 [&] { return format_size(reservation.bytes); });
  reservations_.erase(reservation.begin);
}

CudaStatus CudaGranules::give_back(AddressRange reservation) {
  return virtual_memory_ ? context_.api().address_free(reservation) : context_.api().free(reservation.begin);
}

std::uint64_t CudaGranules::create() {
  if (!virtual_memory_) {
    return 0;
  }
  const std::lock_guard lock(mutex_);
  unmap_strays();
  std::uint64_t granule = 0;
  context_.check_memory(context_.api().memory_create(granule, granule_bytes_, kind_), "cuMemCreate",
                        [&] { return shortage(granule_bytes_); });
  return granule;
}

void CudaGranules::destroy(std::uint64_t granule) {
  if (!virtual_memory_) {
    return;
  }
  context_.check(context_.api().memory_release(granule), "cuMemRelease",
                 [&] { return format_size(granule_bytes_); });
}

void CudaGranules::map(AddressRange range, std::span<const std::uint64_t> granules) {
  if (!virtual_memory_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  unmap_strays();
  strays_.reserve(granules.size());
  Reservation& reservation = reservation_of(range);
  const auto short_of = [&] { return shortage(range.bytes); };
  std::uint64_t end = range.begin;
  try {
    for (const std::uint64_t granule : granules) {
      context_.check_memory(context_.api().memory_map({.begin = end, .bytes = granule_bytes_}, granule),
                            "cuMemMap", short_of);
      mapped_at(reservation, end) = true;
      end += granule_bytes_;
    }
    context_.check_memory(context_.api().memory_set_access(range, users_), "cuMemSetAccess", short_of);
  } catch (...) {
    for (std::uint64_t at = range.begin; at < end; at += granule_bytes_) {
      const CudaStatus status = unmap_one(reservation, at);
      context_.forget(status);
      if (status != CudaStatus::kSuccess) {
        strays_.push_back(at);
      }
    }
    throw;
  }
}

void CudaGranules::unmap(AddressRange range) {
  const std::lock_guard lock(mutex_);
  Reservation& reservation = reservation_of(range);
  for (std::uint64_t at = range.begin; at < range.end(); at += granule_bytes_) {
    if (mapped_at(reservation, at)) {
      context_.check(unmap_one(reservation, at), "cuMemUnmap", [&] { return format_size(granule_bytes_); });
    }
  }
}

CudaGranules::Reservation& CudaGranules::reservation_of(AddressRange range) {
  return std::prev(reservations_.upper_bound(range.begin))->second;
}

std::vector<bool>::reference CudaGranules::mapped_at(Reservation& reservation, std::uint64_t address) const {
  return reservation.mapped[(address - reservation.range.begin) / granule_bytes_];
}

CudaStatus CudaGranules::unmap_one(Reservation& reservation, std::uint64_t address) {
  const CudaStatus status = context_.api().memory_unmap({.begin = address, .bytes = granule_bytes_});
  if (status == CudaStatus::kSuccess) {
    mapped_at(reservation, address) = false;
  }
  return status;
}

void CudaGranules::unmap_strays() {
  while (!strays_.empty()) {
    const std::uint64_t address = strays_.back();
    context_.check(unmap_one(reservation_of({.begin = address, .bytes = granule_bytes_}), address),
                   "cuMemUnmap", [&] { return format_size(granule_bytes_); });
    strays_.pop_back();
  }
}

MemoryShortage CudaGranules::shortage(std::uint64_t asked) const {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  context_.forget(context_.api().memory_info(free, total));
  return {.asked = asked, .in_use = total - free, .budget = total, .would_have_fitted = free};
}

}  // namespace vdnn
