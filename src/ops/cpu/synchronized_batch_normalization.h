#pragma once
// The ops of batch normalisation over the batches of several ranks (ops/standard_recipes.h) that oneDNN does
// not have. oneDNN computes the statistics of one batch only, and its gradient treats given statistics as
// constants.

#include <memory>

#include "src/ops/cpu/layer_ops.h"

namespace vdnn::cpu {

// Sets the algorithms of these ops of the recipe.
void set_synchronized_algorithms(LayerRecipe& recipe, const TensorType& type);
// Compiles any op of the layer except "normalise" and "follow".
std::unique_ptr<CpuKernel> make_synchronized_kernel(const Context& context,
                                                    const BatchNormalizationSpec& spec, const Op& op);

}  // namespace vdnn::cpu
