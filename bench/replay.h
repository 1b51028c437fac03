#pragma once
// Asks an allocator for what a log says.

#include <cstddef>
#include <cstdint>

#include "bench/replayed_allocator.h"
#include "vdnn/allocation_log.h"

namespace vdnn::bench {

struct Replay {
  std::uint64_t peak_reserved_bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t waits = 0;  // of streams for each other, on the device
  double seconds = 0;       // all calls, and what it takes to look at the allocator after each
};

// What is before the step once, the step `steps` times.
Replay replay(const AllocationLog& log, std::size_t steps, ReplayedAllocator& allocator);

}  // namespace vdnn::bench
