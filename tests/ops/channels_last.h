#pragma once
// Converts between tensors in logical order and the dense channels-last fp32 arrays of a device.

#include <span>
#include <vector>

#include "tests/ops/reference.h"

namespace vdnn::testing {

std::vector<float> to_channels_last(const reference::Array& array);
reference::Array from_channels_last(const Dims& dims, std::span<const float> data);

}  // namespace vdnn::testing
