#pragma once
// What the link between host and device carries, one way and both ways at once.

#include <cstdint>

#include "vdnn/device.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/sim_device.h"

namespace vdnn {

// A copy of n bytes takes `copy_seconds` + n / rate.
struct MeasuredLink {
  LinkRates one_way;
  LinkRates both_ways;  // at most those of one
  double copy_seconds = 0;
};

// Copies blocks of `copy_bytes`, or the largest half, quarter... of them of which there is room for two on
// the device and two in `pinned`, and parts of them, between page-locked memory and memory of the device, on
// streams of its own; medians. What is found is exact for such blocks. Nothing else may run. Throws
// OutOfMemory where there is no room.
MeasuredLink measure_link(Device& device, PinnedPool& pinned, std::uint64_t copy_bytes);

}  // namespace vdnn
