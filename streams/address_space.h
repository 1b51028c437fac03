#pragma once
// Records which ranges of a device's address space are reserved, and which of those are committed. Enforces
// the rules of Device::reserve() and related calls, for the drivers that have real memory (`cpu` and `cuda`).
// Never accesses the memory.

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "src/base/interval_map.h"
#include "vdnn/device.h"

namespace vdnn {

// Not synchronised. check_...() throws InvalidArgument.
class AddressSpace {
 public:
  // The committed ranges, each with the protection that protect() set. A decommit drops the protection.
  using Committed = IntervalMap<Protection>;

  // `owner` names the device in errors.
  AddressSpace(std::string owner, std::uint64_t granule_bytes);

  std::uint64_t granule_bytes() const { return granule_bytes_; }
  void add(AddressRange reservation) { reservations_.emplace(reservation.begin, reservation); }
  void remove(AddressRange reservation) { reservations_.erase(reservation.begin); }
  std::vector<AddressRange> reservations() const;
  // The reservation that contains `address`; there must be one.
  AddressRange reservation_of(std::uint64_t address) const {
    return std::prev(reservations_.upper_bound(address))->second;
  }

  // Accepts a whole reservation of which nothing is committed.
  void check_unused(AddressRange reservation) const;
  // Accepts whole granules inside a reservation, none of them committed.
  void check_committable(AddressRange range) const;
  // Accepts whole granules, all of them committed.
  void check_decommittable(AddressRange range) const;
  bool is_committed(AddressRange range) const;

  Committed& committed() { return committed_; }
  const Committed& committed() const { return committed_; }

  [[noreturn]] void refuse(const char* what, AddressRange range) const;

 private:
  void check_granules(AddressRange range) const;
  bool overlaps_committed(AddressRange range) const;

  std::string owner_;
  std::uint64_t granule_bytes_;
  std::map<std::uint64_t, AddressRange> reservations_;  // by begin
  Committed committed_;
};

}  // namespace vdnn
