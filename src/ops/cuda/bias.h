#pragma once
// What layers with filters add to each channel, where the library that computes them does not.

#include <cstdint>

#include "src/ops/cuda/launcher.h"
#include "vdnn/tensor.h"

namespace vdnn::cuda {

// y = x + bias, a value a channel; x and y are of `type`, y may be x.
void launch_bias(const Launcher& launcher, const TensorType& type, const void* x, const float* bias, void* y);

// The sum of dY, which is of `type`, over samples and places, in double. `workspace`: of
// bias_gradient_bytes().
std::uint64_t bias_gradient_bytes(const TensorType& type);
void launch_bias_gradient(const Launcher& launcher, const TensorType& type, const void* dy, float* gradient,
                          const AddressRange& workspace);

}  // namespace vdnn::cuda
