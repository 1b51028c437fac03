#pragma once
// An allocator as bench/allocator_replay asks it: where its blocks lie is its own affair, how much it holds
// is what is compared.

#include <cstdint>

namespace vdnn::bench {

class ReplayedAllocator {
 public:
  ReplayedAllocator() = default;
  virtual ~ReplayedAllocator() = default;
  ReplayedAllocator(const ReplayedAllocator&) = delete;
  ReplayedAllocator& operator=(const ReplayedAllocator&) = delete;

  // `block` is the caller's number for it: none that is in use.
  virtual void allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool lasting) = 0;
  virtual void use(std::uint64_t block, std::uint32_t stream) = 0;
  virtual void free(std::uint64_t block, std::uint32_t stream) = 0;
  // Taken from the device at this moment.
  virtual std::uint64_t reserved_bytes() const = 0;
  // Of one stream for another, on the device, inserted so far.
  virtual std::uint64_t waits() const { return 0; }
};

}  // namespace vdnn::bench
