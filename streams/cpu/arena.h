#pragma once
// The device memory of the `cpu` driver: reserved address space in which granules become accessible as they
// are committed. Everything else in it faults, so that an access to what was never committed, or to what has
// been decommitted, cannot go unseen.
//
// Three things decide whether a committed page is accessible: protect(), which stays; a restriction to the
// declared ranges of the one piece of work that runs, which comes and goes; and commits and decommits of the
// host at any time between. So what protect() said is kept with each committed range, and the state of a page
// is always derived from it.

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "streams/address_space.h"
#include "streams/mapping.h"
#include "vdnn/device.h"

namespace vdnn {

// Thread-safe. Arguments are checked (InvalidArgument); budgets are the caller's.
class Arena {
 public:
  // `owner` names the device in errors.
  Arena(std::string owner, std::uint64_t granule_bytes);
  // Gives back what is still reserved.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  void commit(AddressRange range);
  void decommit(AddressRange range);

  // Whether all of `range` is committed.
  bool committed(AddressRange range) const;
  // `range`: committed, in whole pages.
  void protect(AddressRange range, Protection protection);

  // Until lift_restriction(), only the pages that hold declared bytes are accessible, and only those that
  // hold written ones can be written; where AddressSanitizer is built in it knows the declared bytes exactly.
  // Addresses outside of the arena are ignored.
  void restrict_to(std::span<const Access> reads, std::span<const Access> writes);
  void lift_restriction();

 private:
  // Calls visitor(piece) for the pieces of `range` that are committed and that protect() left accessible.
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
