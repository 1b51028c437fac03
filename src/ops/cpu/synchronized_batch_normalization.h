#pragma once
// The ops of batch normalisation over the batches of several ranks (ops/standard_recipes.h) that oneDNN does
// not have: its statistics are those of one batch, and its gradient takes statistics that were given to it
// for constants.

#include <memory>

#include "src/ops/cpu/layer_ops.h"

namespace vdnn::cpu {

// Gives these ops of the recipe their algorithms.
void set_synchronized_algorithms(LayerRecipe& recipe, const TensorType& type);
// Of any but normalisation and the running statistics.
std::unique_ptr<CpuKernel> make_synchronized_kernel(const Context& context,
                                                    const BatchNormalizationSpec& spec, const Op& op);

}  // namespace vdnn::cpu
