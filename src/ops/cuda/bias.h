#pragma once
// The bias of layers with filters, for libraries that do not add it.

#include <cstdint>

#include "src/ops/cuda/launcher.h"
#include "vdnn/tensor.h"

namespace vdnn::cuda {

// y = x + bias, with one value per channel. x and y have `type`; y may be x.
void launch_bias(const Launcher& launcher, const TensorType& type, const void* x, const float* bias, void* y);

// Computes the sum of dY, which has `type`, over samples and places, in double. `workspace` must have
// bias_gradient_bytes(type).
std::uint64_t bias_gradient_bytes(const TensorType& type);
void launch_bias_gradient(const Launcher& launcher, const TensorType& type, const void* dy, float* gradient,
                          const AddressRange& workspace);

}  // namespace vdnn::cuda
