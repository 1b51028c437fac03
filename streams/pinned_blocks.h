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
  // `owner` names the device in errors, `budget_bytes` is what they say besides; of which `kind` blocks are.
  PinnedBlocks(std::string owner, std::uint64_t budget_bytes, Mapping::Kind kind);

  // Exactly `bytes`, on a huge page where that many are asked for and pages come when they are touched.
  // Throws OutOfMemory where the system refuses.
  AddressRange take(std::uint64_t bytes);
  // Throws InvalidArgument for what is not a whole block.
  void check(AddressRange block) const;
  // A block that was taken.
  void give_back(AddressRange block);
  // Likewise, of one that a driver keeps page-locked: it stays mapped until the process ends, since what came
  // to lie at its address would be taken for it.
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
