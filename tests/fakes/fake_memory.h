#pragma once
// Physical memory of fake GPUs. As with CUDA's virtual memory management, it can be mapped at several places
// at once: bytes that are written at one place are read at all of them. It is an unnamed file, from which
// released pages are punched out. It can also be logical: offsets alone, nothing is mapped.

#include <cstdint>
#include <optional>

#include "vdnn/device.h"

namespace vdnn {

// Not synchronised.
class FakeMemory {
 public:
  explicit FakeMemory(bool logical) : logical_(logical) {}
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // Allocates `bytes`, whole pages, and returns their offset, which no other allocation has ever had. They
  // are not filled with zeros, so that no caller comes to rely on that. Empty when the system has no more.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  void give_back(std::uint64_t offset, std::uint64_t bytes);

  // In place of reserved address space; inaccessible until open(). False where the system refuses.
  bool map(AddressRange range, std::uint64_t offset) const;
  void open(AddressRange range) const;
  // `range` is reserved address space again.
  void unmap(AddressRange range) const;

 private:
  bool fill(std::uint64_t offset, std::uint64_t bytes);

  const bool logical_;
  int file_ = -1;  // none before the first bytes are taken
  std::uint64_t taken_ = 0;
};

}  // namespace vdnn
