#pragma once
// All that a policy knows about a device: the times of ops and copies, and the granularity of memory.
// predictor.h derives these costs from a profile.

#include <cstdint>
#include <vector>

namespace vdnn {

struct PlanCosts {
  // By op and algorithm: seconds on the idle device, the launch included.
  std::vector<std::vector<double>> op_seconds;
  // Bytes per second, alone and while the other direction is busy.
  double device_to_host = 0;
  double host_to_device = 0;
  double device_to_host_both_ways = 0;
  double host_to_device_both_ways = 0;
  double copy_seconds = 0;            // per copy, in addition to the time for its bytes
  std::uint64_t alignment_bytes = 0;  // of blocks; a power of two
  std::uint64_t granule_bytes = 0;    // in which memory is committed; a power of two
};

}  // namespace vdnn
