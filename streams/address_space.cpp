#include "streams/address_space.h"

#include <iterator>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

AddressSpace::AddressSpace(std::string owner, std::uint64_t granule_bytes)
    : owner_(std::move(owner)), granule_bytes_(granule_bytes) {}

void AddressSpace::refuse(const char* what, AddressRange range) const {
  throw InvalidArgument(owner_ + ": " + what + " (" + format_size(range.bytes) + " at address " +
                        std::to_string(range.begin) + ")");
}

std::vector<AddressRange> AddressSpace::reservations() const {
  std::vector<AddressRange> all;
  for (const auto& [begin, reservation] : reservations_) {
    all.push_back(reservation);
  }
  return all;
}

void AddressSpace::check_unused(AddressRange reservation) const {
  const auto it = reservations_.find(reservation.begin);
  if (it == reservations_.end() || it->second != reservation) {
    refuse("not a reservation", reservation);
  }
  if (overlaps_committed(reservation)) {
    refuse("part of the reservation to give back is still committed", reservation);
  }
}

void AddressSpace::check_granules(AddressRange range) const {
  if (range.bytes == 0 || range.begin % granule_bytes_ != 0 || range.bytes % granule_bytes_ != 0) {
    refuse("not a range of whole granules", range);
  }
  const auto after = reservations_.upper_bound(range.begin);
  if (after == reservations_.begin() || !std::prev(after)->second.contains(range)) {
    refuse("not inside a reservation", range);
  }
}

void AddressSpace::check_committable(AddressRange range) const {
  check_granules(range);
  if (overlaps_committed(range)) {
    refuse("committed already", range);
  }
}

void AddressSpace::check_decommittable(AddressRange range) const {
  check_granules(range);
  if (!is_committed(range)) {
    refuse("not committed", range);
  }
}

bool AddressSpace::is_committed(AddressRange range) const {
  bool all = true;
  committed_.visit(range, [&](AddressRange, const Protection* state) { all = all && state != nullptr; });
  return all;
}

bool AddressSpace::overlaps_committed(AddressRange range) const {
  bool any = false;
  committed_.visit(range, [&](AddressRange, const Protection* state) { any = any || state != nullptr; });
  return any;
}

}  // namespace vdnn
