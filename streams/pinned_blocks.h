#pragma once
// Blocks of host memory that start on pages: page-locked memory as far as the operating system goes. Their
// pages are there from the start, or a driver that locks them sees to that itself.

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

  // Exactly `bytes`, on a huge page where that many are asked for and pages come when they are touched.
  // Throws OutOfMemory where the system refuses.
  AddressRange take(std::uint64_t bytes);
  // Throws InvalidArgument if `range` is not a whole block.
  void check(AddressRange block) const;
  // A block that was taken.
  void give_back(AddressRange block);
  // The same for a block that a driver keeps page-locked: it stays mapped until the process ends, since the
  // driver would take another mapping at its address for it.
  void leave_to_driver(AddressRange block);

  // Whether all of `range` lies in one block.
  bool contain(AddressRange range) const;
  std::vector<AddressRange> all() const;

 private:
  std::string owner_;
  std::uint64_t budget_bytes_;
  Mapping::Kind kind_;
  mutable std::mutex mutex_;                 // guards what follows
  std::map<std::uint64_t, Mapping> blocks_;  // by begin
};

}  // namespace vdnn
