#pragma once
// The two directions of a link and their rates.

#include <array>

#include "vdnn/device.h"
#include "vdnn/sim_device.h"

namespace vdnn {

inline constexpr std::array kDirections{CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice};

inline double& rate_of(LinkRates& rates, CopyDirection direction) noexcept {
  return direction == CopyDirection::kDeviceToHost ? rates.device_to_host : rates.host_to_device;
}

}  // namespace vdnn
