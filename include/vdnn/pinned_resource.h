#pragma once
// Page-locked host memory for containers of the standard library: a std::pmr::memory_resource over a
// PinnedPool. Copies between such a container and a device run at full speed, without a staging copy. In the
// steady state, creating and destroying containers of the same size locks no pages.
//
// The standard's interface knows no devices, so the constructor is told which stream copies to and from the
// memory.

#include <cstddef>
#include <memory_resource>

#include "vdnn/device.h"
#include "vdnn/pinned_pool.h"

namespace vdnn {

// Thread-safe. Pool and device must outlive it, and it must outlive the memory that it has handed out.
class PinnedResource final : public std::pmr::memory_resource {
 public:
  // Use this constructor if memory is idle when it is given back.
  explicit PinnedResource(PinnedPool& pool) : pool_(pool) {}
  // Use this constructor if work on `stream` of the pool's `device` may still use memory when it is given
  // back. The host waits for that work when the memory is handed out next.
  PinnedResource(PinnedPool& pool, const Device& device, StreamId stream)
      : pool_(pool), device_(&device), stream_(stream) {}

 private:
  // Throws OutOfMemory when the pool's budget does not allow it, InvalidArgument for an alignment of more
  // than 4096 bytes. Size 0 is size 1.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  // Whether `other` gives memory back to the same pool in the order of the same stream.
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  PinnedPool& pool_;
  const Device* device_ = nullptr;
  StreamId stream_ = 0;
};

}  // namespace vdnn
