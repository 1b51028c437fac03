#pragma once
// Measures the link between host and device: the rates one way, and the rates while copies run in both
// directions.

#include <cstdint>

#include "vdnn/device.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/sim_device.h"

namespace vdnn {

// A copy of n bytes takes `copy_seconds` + n / rate seconds.
struct MeasuredLink {
  LinkRates one_way;
  LinkRates both_ways;  // of each direction while copies run in both; at most `one_way`
  double copy_seconds = 0;
};

// Copies blocks of `copy_bytes`, and parts of blocks, between page-locked and device memory on two new
// streams, and returns medians. If the device or `pinned` cannot hold two blocks, halves `copy_bytes` until
// both can. The rates are exact for copies of this size. No other work may run on the device during the call.
// Throws OutOfMemory if not even blocks of one byte fit.
MeasuredLink measure_link(Device& device, PinnedPool& pinned, std::uint64_t copy_bytes);

}  // namespace vdnn
