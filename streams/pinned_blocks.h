#pragma once
// Blocks of host memory that are touched and start on pages: page-locked memory as far as the operating
// system goes. A driver of a real device locks them besides.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "streams/mapping.h"
#include "vdnn/device.h"

namespace vdnn {

// What the machine has, in bytes.
std::uint64_t physical_memory_bytes();

// Thread-safe.
class PinnedBlocks {
 public:
  // `owner` names the device in errors, `budget_bytes` is what they say besides.
  PinnedBlocks(std::string owner, std::uint64_t budget_bytes);

  // Exactly `bytes`. Throws OutOfMemory where the system refuses.
  AddressRange take(std::uint64_t bytes);
  // Throws InvalidArgument for what is not a whole block.
  void check(AddressRange block) const;
  // A block that was taken.
  void give_back(AddressRange block);

  // Whether all of `range` lies in one block.
  bool contain(AddressRange range) const;
  std::vector<AddressRange> all() const;

 private:
  std::string owner_;
  std::uint64_t budget_bytes_;
  mutable std::mutex mutex_;                 // guards what follows
  std::map<std::uint64_t, Mapping> blocks_;  // by begin
};

}  // namespace vdnn
