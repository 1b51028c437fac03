#pragma once
// Physical memory of fake GPUs, which can be mapped at several places at once, as CUDA's virtual memory
// management has it: what is written at one is read at all. Behind it is a file without a name, of which the
// pages that were given back are punched out. Or it is logical: offsets alone, nothing is mapped.

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

  // `bytes` of it, whole pages: where they begin, which is where no others ever have. What they hold is not
  // zeros that somebody could come to rely on. Empty where the system has no more.
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
