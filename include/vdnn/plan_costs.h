#pragma once
// What ops and copies take on a device, and how memory is handed out there: all that a policy has to know of
// a device to reckon with it. predictor.h makes it from a profile.

#include <cstdint>
#include <vector>

namespace vdnn {

struct PlanCosts {
  // An op, an algorithm: seconds on the idle device, the launch included.
  std::vector<std::vector<double>> op_seconds;
  // Bytes a second, alone and while the other direction is busy; and seconds that each copy takes besides.
  double device_to_host = 0;
  double host_to_device = 0;
  double device_to_host_both_ways = 0;
  double host_to_device_both_ways = 0;
  double copy_seconds = 0;
  std::uint64_t alignment_bytes = 0;  // of blocks; a power of two
  std::uint64_t granule_bytes = 0;    // in which memory is committed; a power of two
};

}  // namespace vdnn
