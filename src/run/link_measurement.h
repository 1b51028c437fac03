#pragma once
// Measures the rates of the link between host and device, one way and both ways at once.

#include <cstdint>

#include "vdnn/device.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/sim_device.h"

namespace vdnn {

// A copy of n bytes takes `copy_seconds` + n / rate.
struct MeasuredLink {
  LinkRates one_way;
  LinkRates both_ways;  // at most the rates one way
  double copy_seconds = 0;
};

// Copies blocks of `copy_bytes`, and parts of them, between page-locked and device memory on two new streams,
// and returns medians. If the device or `pinned` has no room for two blocks, halves them until there is room.
// The rates are exact for blocks of this size. Nothing else may run on the device meanwhile. Throws
// OutOfMemory if there is no room for blocks of any size.
MeasuredLink measure_link(Device& device, PinnedPool& pinned, std::uint64_t copy_bytes);

}  // namespace vdnn
