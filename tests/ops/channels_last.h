#pragma once
// Between tensors in logical order and dense fp32 as a device that computes channels last holds it.

#include <span>
#include <vector>

#include "tests/ops/reference.h"

namespace vdnn::testing {

std::vector<float> to_channels_last(const reference::Array& array);
reference::Array from_channels_last(const Dims& dims, std::span<const float> data);

}  // namespace vdnn::testing
