#pragma once
// The interface through which bench/allocator_replay calls an allocator. Only the amount of reserved memory
// is compared, so blocks have numbers instead of addresses.

#include <cstdint>

namespace vdnn::bench {

class ReplayedAllocator {
 public:
  ReplayedAllocator() = default;
  virtual ~ReplayedAllocator() = default;
  ReplayedAllocator(const ReplayedAllocator&) = delete;
  ReplayedAllocator& operator=(const ReplayedAllocator&) = delete;

  // `block` is the caller's number for the block, which must not be in use. `lasting`: the block is
  // long-lived.
  virtual void allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool lasting) = 0;
  virtual void use(std::uint64_t block, std::uint32_t stream) = 0;
  virtual void free(std::uint64_t block, std::uint32_t stream) = 0;
  // Bytes of device memory that the allocator has reserved now.
  virtual std::uint64_t reserved_bytes() const = 0;
  // Waits of one stream for another that the allocator has inserted so far.
  virtual std::uint64_t waits() const { return 0; }
};

}  // namespace vdnn::bench
