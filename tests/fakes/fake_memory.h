#pragma once
// Physical memory of fake GPUs. As in CUDA's virtual memory management, it can be mapped at several places at
// once, and all of them show the same bytes. The memory is an unnamed file, out of which released pages are
// punched. Memory can also be logical: offsets alone, with nothing mapped.

#include <cstdint>
#include <optional>

#include "vdnn/device.h"

namespace vdnn {

// Call the functions from one thread at a time.
class FakeMemory {
 public:
  explicit FakeMemory(bool logical) : logical_(logical) {}
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // Allocates `bytes`, in whole pages, and returns their offset, which no other allocation has ever had. The
  // bytes are not zero, so that no caller comes to rely on that. Returns nothing if the system has no more
  // memory.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  void give_back(std::uint64_t offset, std::uint64_t bytes);

  // Maps the memory at `offset` in place of reserved address space. The range is inaccessible until open().
  // Returns false if the system refuses.
  bool map(AddressRange range, std::uint64_t offset) const;
  void open(AddressRange range) const;
  // Makes `range` reserved address space again.
  void unmap(AddressRange range) const;

 private:
  bool fill(std::uint64_t offset, std::uint64_t bytes);

  const bool logical_;
  int file_ = -1;  // -1 until the first take()
  std::uint64_t taken_ = 0;
};

}  // namespace vdnn
