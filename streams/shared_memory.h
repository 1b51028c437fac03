#pragma once
// Host memory that may be mapped at several addresses at the same time, all of which show the same bytes.

#include <cstdint>

#include "vdnn/address_range.h"

namespace vdnn {

// Thread-safe. Offsets and sizes are whole pages.
class SharedMemory {
 public:
  // Pages are populated when they are touched. Throws DeviceError if the system has no such memory.
  SharedMemory(const char* name, std::uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Maps the bytes from `offset` on at `range`, in place of any mapping there. Throws OutOfMemory if the
  // system refuses.
  void map(AddressRange range, std::uint64_t offset) const;
  // Makes `range` inaccessible; it stays reserved.
  static void unmap(AddressRange range);
  // Gives the pages of this part back to the system; their contents are lost.
  void discard(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  int file_ = -1;
};

}  // namespace vdnn
