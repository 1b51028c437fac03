#pragma once
// Page-locked host memory for containers of the standard library: a std::pmr::memory_resource over a
// PinnedPool. What is kept there copies to a device at full speed and without a copy in between, and in the
// steady state a container that comes and goes with the same size locks no page.
//
// The standard's interface says nothing of devices, so the resource is told at its making which stream
// copies to and from what it gives out.

#include <cstddef>
#include <memory_resource>

#include "vdnn/device.h"
#include "vdnn/pinned_pool.h"

namespace vdnn {

// Thread-safe. Pool and device must outlive it, and it must outlive what it has given out.
class PinnedResource final : public std::pmr::memory_resource {
 public:
  // No work is in flight on what is given back.
  explicit PinnedResource(PinnedPool& pool) : pool_(pool) {}
  // What is given back may still be used by what `stream` of `device`, the pool's, was given before; whoever
  // is given it next has the host wait for that.
  PinnedResource(PinnedPool& pool, const Device& device, StreamId stream)
      : pool_(pool), device_(&device), stream_(stream) {}

 private:
  // Throws OutOfMemory where the pool's budget does not allow it, InvalidArgument for an alignment of more
  // than 4096. Size 0 is size 1.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  // One that gives to the same pool in the same order.
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  PinnedPool& pool_;
  const Device* device_ = nullptr;
  StreamId stream_ = 0;
};

}  // namespace vdnn
