#pragma once
// The pool of page-locked host memory: exact sizes, never rounded; a freed block is kept for the next request
// of the same size and carries the frontier of its last users, as in device_pool.h. Page-locking is slow and
// stalls devices, so in the steady state it never happens; and a reload that races its own earlier copy
// across a step's border cannot happen, because the block's frontier orders them (REFERENCES:
// Megatron-LM#7398).
//
// When the budget does not allow a new block, cached blocks of other sizes whose work has completed are given
// back to the system first, oldest first (the host waits for their frontiers: only work in flight is ever
// waited for), then the request is refused.

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
  std::uint64_t page_locks = 0;  // that reached the device
  std::uint64_t failures = 0;
};

// Thread-safe. Blocks must be freed before the pool dies; its destructor waits for work in flight.
class PinnedPool {
 public:
  // budget_bytes 0: the device's host budget.
  explicit PinnedPool(Device& device, std::uint64_t budget_bytes = 0);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Exactly `bytes` (> 0) for use by `stream` and whoever is ordered after it; the stream is made to wait
  // where the block is still in use. Empty when the budget does not allow it.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamId stream);
  // For use by the host: blocks the caller until a reused block is free in fact.
  std::optional<AddressRange> allocate_for_host(std::uint64_t bytes);
  // As DevicePool::free.
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
