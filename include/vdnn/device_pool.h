#pragma once
// The device pool: a caching, stream-ordered allocator over one Device.
//
// Offsets are kept apart from memory. The bookkeeping (allocator/tlsf.h) knows one contiguous range of
// offsets that grows at its end; the pool commits granules of one reservation for this range. Requests are
// rounded up to the device's alignment.
//
// A free block carries the *frontier* of its last users. If the frontier of the requesting stream dominates
// the block's, the stream gets the block at once. Otherwise the stream is made to wait, on the device, for
// just the points that its frontier lacks. Neighbouring free blocks are merged at once and their frontiers
// joined.
//
// Reuse, waits included, always comes before growth, and the free end of the range is used last whether it is
// committed or not. So the peak of a sequence of requests does not depend on the budget. Placement depends on
// the order of requests and on frontiers, never on which work has completed or how far the pool has grown.
//
// Cost: an allocation and a free are O(1). Only before it uses the free end of the range, an allocation
// searches all free blocks of the request's size class.
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
  // Most bytes that the pool may commit, rounded down to granules. 0: the device's budget.
  std::uint64_t budget_bytes = 0;
  // Makes freed blocks inaccessible until they are handed out again, by Device::protect() on a stream of the
  // pool's own ("guard"). Requires a device whose blocks are page-aligned.
  bool protect_released = false;
};

struct DevicePoolStatistics {
  std::uint64_t in_use_bytes = 0;  // handed out, rounding included
  std::uint64_t peak_in_use_bytes = 0;
  std::uint64_t requested_bytes = 0;  // handed out, as requested
  std::uint64_t committed_bytes = 0;
  std::uint64_t peak_committed_bytes = 0;
  std::uint64_t largest_free_block_bytes = 0;
  std::uint64_t blocks_in_use = 0;
  std::uint64_t allocations = 0;        // granted
  std::uint64_t reused_at_once = 0;     // allocations from free memory without a wait
  std::uint64_t reused_after_wait = 0;  // allocations from free memory for which the stream waits
  std::uint64_t growths = 0;
  std::uint64_t failures = 0;
};

// Thread-safe. Blocks must be freed before the pool is destroyed; its destructor waits for work in flight and
// gives the memory back to the device, which must outlive it.
class DevicePool {
 public:
  DevicePool(Device& device, const DevicePoolOptions& options);
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Allocates `bytes` (0 is treated as 1) for use by `stream` and by streams that are ordered after it. Empty
  // when the budget does not allow it: an expected outcome, see shortage(). Throws only what the device
  // throws.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamId stream);
  // Frees a block, exactly as it was handed out. `last_use` must dominate every use of the block; empty means
  // that the block was never used. Throws InvalidArgument, and changes nothing, when the block is not in use
  // or `last_use` names a submission that has not been made.
  void free(AddressRange block, const Frontier& last_use);

  // Commits memory, or gives back free memory at the end of the range, until `bytes` (rounded up to granules)
  // are committed, or more if the last block in use needs more. Reserves a known peak up front, so that
  // failure happens here rather than in the middle of a step. Addresses of later blocks do not depend on this
  // call. It blocks until work on the memory that is given back is done. Returns false and changes nothing if
  // the budget does not allow it. Throws what the device throws.
  bool resize(std::uint64_t bytes);

  // The numbers that explain why a request of `asked` bytes was refused.
  MemoryShortage shortage(std::uint64_t asked) const;
  DevicePoolStatistics statistics() const;
  Device& device();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
