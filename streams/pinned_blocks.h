#pragma once
// Page-aligned blocks of host memory for page-locking. Their pages are populated when the block is made, or
// by the driver that locks the block.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "streams/mapping.h"
#include "vdnn/device.h"

namespace vdnn {

// Thread-safe.
class PinnedBlocks {
 public:
  // Errors contain `owner`, the device's name, and `budget_bytes`; `kind` is the kind of the mappings.
  PinnedBlocks(std::string owner, std::uint64_t budget_bytes, Mapping::Kind kind);

  // Allocates a block of exactly `bytes`. With kUntouched, a block of at least one huge page is aligned to
  // huge pages. Throws OutOfMemory if the system refuses.
  AddressRange take(std::uint64_t bytes);
  // Throws InvalidArgument if `block` is not a whole block.
  void check(AddressRange block) const;
  // `block` must come from take().
  void give_back(AddressRange block);
  // Likewise, for a block that a driver has not unlocked. The block stays mapped until the process ends,
  // since the driver would mistake another mapping at its address for the block.
  void leave_to_driver(AddressRange block);

  // Whether all of `range` lies in one block.
  bool contain(AddressRange range) const;
  std::vector<AddressRange> all() const;

 private:
  std::string owner_;
  std::uint64_t budget_bytes_;
  Mapping::Kind kind_;
  mutable std::mutex mutex_;                 // guards the members below
  std::map<std::uint64_t, Mapping> blocks_;  // by begin
};

}  // namespace vdnn
