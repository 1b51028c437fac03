#pragma once
// The address space of a device that has no memory: which bytes are reserved, committed, page-locked or
// protected. Addresses are never given out twice, so that a use after release is always found.

#include <cstdint>
#include <map>
#include <string>

#include "src/base/interval_map.h"
#include "vdnn/device.h"

namespace vdnn {

// Not synchronised. Checks arguments (InvalidArgument); the caller enforces budgets.
class SimMemory {
 public:
  enum class Space : std::uint8_t { kDevice, kHost };

  // `owner` names the device in errors.
  SimMemory(std::string owner, std::uint64_t granule_bytes);

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  void commit(AddressRange range);
  void decommit(AddressRange range);
  AddressRange allocate_pinned(std::uint64_t bytes);
  void free_pinned(AddressRange block);
  void protect(AddressRange range, Protection protection);

  // The space of an address; needs only the address itself.
  static Space space_of(std::uint64_t address);
  // Calls visitor(piece) for the parts of `range` that are not committed (device) or in no live pinned block
  // (host).
  template <class Visitor>
  void visit_missing(Space space, AddressRange range, Visitor&& visitor) const {
    (space == Space::kDevice ? committed_ : pinned_)
        .visit(range, [&](AddressRange piece, const Nothing* there) {
          if (there == nullptr) {
            visitor(piece);
          }
        });
  }
  // Calls visitor(piece) for the parts of `range` that are protected.
  template <class Visitor>
  void visit_inaccessible(AddressRange range, Visitor&& visitor) const {
    inaccessible_.visit(range, [&](AddressRange piece, const Nothing* there) {
      if (there != nullptr) {
        visitor(piece);
      }
    });
  }

 private:
  struct Nothing {};
  using Set = IntervalMap<Nothing>;
  AddressRange take(std::uint64_t& next, std::uint64_t bytes, std::uint64_t unit, std::uint64_t limit);
  void check_granules(AddressRange range) const;
  [[noreturn]] void refuse(const std::string& what, AddressRange range) const;

  std::string owner_;
  std::uint64_t granule_bytes_;
  std::uint64_t next_reservation_;
  std::uint64_t next_pinned_;
  std::map<std::uint64_t, std::uint64_t> reservations_;   // begin -> bytes
  std::map<std::uint64_t, std::uint64_t> pinned_blocks_;  // begin -> bytes
  Set committed_;
  Set pinned_;
  Set inaccessible_;
};

}  // namespace vdnn
