#pragma once
// Fully connected layers (oneDNN's inner product). The input may have space: weights K x C x space are then a
// filter as large as the input, and nothing is flattened or copied.

#include "src/ops/cpu/filter_layer.h"
#include "src/ops/cpu/layer_ops.h"

namespace vdnn::cpu {

FilterLayer filter_layer(const Context& context, const FullyConnectedSpec& spec, const TensorType& input,
                         const TensorType& output);

}  // namespace vdnn::cpu
