#pragma once
// Convolutions of one to three dimensions of space, through oneDNN's direct algorithms.

#include "src/ops/cpu/filter_layer.h"
#include "src/ops/cpu/layer_ops.h"

namespace vdnn::cpu {

FilterLayer filter_layer(const Context& context, const ConvolutionSpec& spec, const TensorType& input,
                         const TensorType& output);

}  // namespace vdnn::cpu
