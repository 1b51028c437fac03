#pragma once
// Memory of the host that may be mapped at several addresses at once: all of them show the same bytes.

#include <cstdint>

#include "vdnn/address_range.h"

namespace vdnn {

// Thread-safe. Offsets and sizes are whole pages.
class SharedMemory {
 public:
  // Pages come as they are touched. Throws DeviceError where the system has none.
  SharedMemory(const char* name, std::uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // At `range`, whatever was mapped there. Throws OutOfMemory where the system refuses.
  void map(AddressRange range, std::uint64_t offset) const;
  // Makes `range` inaccessible; it stays reserved.
  static void unmap(AddressRange range);
  // Its pages go back to the system.
  void discard(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  int file_ = -1;
};

}  // namespace vdnn
