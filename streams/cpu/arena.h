#pragma once
// The device memory of the `cpu` driver: reserved address space in which granules become accessible when they
// are committed. All other addresses fault, so that no access to memory that is not committed goes unnoticed.
//
// Three things decide whether a page is accessible: the protection that protect() set; a temporary
// restriction to the declared ranges of the running piece of work; and commits and decommits by the host at
// any time. So the arena stores the protection of each committed range, and derives the state of a page from
// it.

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "streams/address_space.h"
#include "streams/mapping.h"
#include "vdnn/device.h"

namespace vdnn {

// Thread-safe. Checks arguments (InvalidArgument); the caller enforces budgets.
class Arena {
 public:
  // `owner` names the device in errors.
  Arena(std::string owner, std::uint64_t granule_bytes);
  // Gives back all remaining reservations.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  void commit(AddressRange range);
  void decommit(AddressRange range);

  // Whether all of `range` is committed.
  bool committed(AddressRange range) const;
  // `range` must consist of whole, committed pages.
  void protect(AddressRange range, Protection protection);

  // Until lift_restriction(), only pages that contain declared bytes are accessible, and only those that
  // contain declared writes are writable. With AddressSanitizer, the check is exact to the byte. Ignores
  // addresses outside of the arena.
  void restrict_to(std::span<const Access> reads, std::span<const Access> writes);
  void lift_restriction();

 private:
  // Calls visitor(piece) for the pieces of `range` that are committed and not protected by protect().
  template <class Visitor>
  void visit_accessible(AddressRange range, Visitor&& visitor) const;
  void admit(const Access& access, int page_access);

  const std::string owner_;
  mutable std::mutex mutex_;
  AddressSpace space_;
  std::map<std::uint64_t, Mapping> mappings_;  // of the reservations, by begin
  bool restricted_ = false;
};

}  // namespace vdnn
