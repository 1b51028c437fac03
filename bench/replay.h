#pragma once
// Replays an allocation log against an allocator.

#include <cstddef>
#include <cstdint>

#include "bench/replayed_allocator.h"
#include "vdnn/allocation_log.h"

namespace vdnn::bench {

struct Replay {
  std::uint64_t peak_reserved_bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t waits = 0;  // waits between streams on the device
  double seconds = 0;       // of all calls, and of reading the allocator's figures after each
};

// Replays the part of the log before the step once, and the step `steps` times.
Replay replay(const AllocationLog& log, std::size_t steps, ReplayedAllocator& allocator);

}  // namespace vdnn::bench
