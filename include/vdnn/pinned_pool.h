#pragma once
// The pool of page-locked host memory, in exact sizes, never rounded. A freed block is kept for the next
// request of the same size and carries the frontier of its last users, as in device_pool.h. Page-locking is
// slow and stalls devices; in the steady state it never happens. The block's frontier also orders a reload
// after the earlier copy into the same block, so the two cannot race across a step's border (Megatron-LM
// issue 7398).
//
// When the budget does not allow a new block, cached blocks of other sizes are given back to the system
// first, oldest first; the host waits for work in flight on them. If that does not suffice, the request is
// refused.

#include <cstdint>
#include <memory>
#include <optional>

#include "vdnn/device.h"
#include "vdnn/error.h"

namespace vdnn {

struct PinnedPoolStatistics {
  std::uint64_t in_use_bytes = 0;
  std::uint64_t cached_bytes = 0;
  std::uint64_t peak_bytes = 0;  // page-locked, in use or cached
  std::uint64_t allocations = 0;
  std::uint64_t page_locks = 0;  // calls of Device::allocate_pinned()
  std::uint64_t failures = 0;
};

// Thread-safe. Blocks must be freed before the pool is destroyed; its destructor waits for work in flight.
// The device must outlive it.
class PinnedPool {
 public:
  // `budget_bytes`: the most that may be page-locked; 0: the device's host budget.
  explicit PinnedPool(Device& device, std::uint64_t budget_bytes = 0);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Allocates exactly `bytes` (> 0) for use by `stream` and by streams that are ordered after it; the stream
  // is made to wait if earlier work still uses the block. Empty when the budget does not allow it.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamId stream);
  // Allocates a block for use by the host. Blocks the caller until earlier work on the block is done.
  std::optional<AddressRange> allocate_for_host(std::uint64_t bytes);
  // Frees a block as DevicePool::free() does.
  void free(AddressRange block, const Frontier& last_use);

  // Gives every cached block back to the system; waits for the work in flight on them.
  void trim();

  MemoryShortage shortage(std::uint64_t asked) const;
  PinnedPoolStatistics statistics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
