#pragma once
// The device pool: a caching, stream-ordered allocator over one Device.
//
// Offsets are kept apart from memory: the bookkeeping (allocator/tlsf.h) knows one contiguous range of
// offsets that grows at its end; the pool commits granules of one reservation behind it. Requests are rounded
// up to the device's alignment.
//
// A free block carries the *frontier* of its last users. When a stream asks for memory and its own frontier
// dominates the block's, it gets the block at once; else the stream is made to wait, on the device, for just
// what is missing. Reuse, waiting included, always comes before growth, and the free end of the range is
// taken last whether it is committed or not: so the peak of a given sequence of requests does not depend on
// the budget, and placement depends on the order of requests and on frontiers, never on what happens to have
// completed or how far the pool has grown. Neighbouring free blocks are merged at once and their frontiers
// joined.
//
// Cost: O(1) an allocation and a free, but for the exact search before growth, which is linear in the free
// blocks of one size class.
//
// Source of the method: Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems" (2004);
// frontiers on free blocks as in IREE's HAL pools.

#include <cstdint>
#include <memory>
#include <optional>

#include "vdnn/device.h"
#include "vdnn/error.h"

namespace vdnn {

struct DevicePoolOptions {
  // Bytes that the pool may have committed, rounded down to granules. 0: the device's budget.
  std::uint64_t budget_bytes = 0;
  // Makes released blocks inaccessible until they are handed out again, through Device::protect on a stream
  // of the pool's own ("guard"). Needs a device whose blocks are page-aligned.
  bool protect_released = false;
};

struct DevicePoolStatistics {
  std::uint64_t in_use_bytes = 0;  // handed out, rounding included
  std::uint64_t peak_in_use_bytes = 0;
  std::uint64_t requested_bytes = 0;  // handed out, as asked
  std::uint64_t committed_bytes = 0;
  std::uint64_t peak_committed_bytes = 0;
  std::uint64_t largest_free_block_bytes = 0;
  std::uint64_t blocks_in_use = 0;
  std::uint64_t allocations = 0;        // granted
  std::uint64_t reused_at_once = 0;     // from the cache, no wait
  std::uint64_t reused_after_wait = 0;  // from the cache, the stream waits
  std::uint64_t growths = 0;
  std::uint64_t failures = 0;
};

// Thread-safe. Blocks must be freed before the pool dies; its destructor waits for work in flight and gives
// the memory back to the device.
class DevicePool {
 public:
  DevicePool(Device& device, const DevicePoolOptions& options);
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // `bytes` (0 is treated as 1) for use by `stream`, and by whoever is ordered after it. Empty when the
  // budget does not allow it: an expected outcome, see `shortage`. Throws only what the device throws.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamId stream);
  // Gives a block back, exactly as it was handed out. `last_use` must dominate every use of it; empty says
  // that it was never used. Throws InvalidArgument, and changes nothing, when the block is not in use or
  // `last_use` names a submission that has not been made.
  void free(AddressRange block, const Frontier& last_use);

  // Commits memory, or gives back what is free at the end, until `bytes` (rounded up to granules) are
  // committed, or as far as the last block in use reaches, where that is more: for who knows what will be
  // taken, and wants it, or to be refused, beforehand. No address depends on it. Blocks until what is given
  // back is out of use. False, and nothing changes, where the budget does not allow it. Throws what the
  // device throws.
  bool resize(std::uint64_t bytes);

  // The numbers of a request that was refused.
  MemoryShortage shortage(std::uint64_t asked) const;
  DevicePoolStatistics statistics() const;
  Device& device();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
