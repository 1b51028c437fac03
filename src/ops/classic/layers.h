#pragma once
// Recipes of the layers with operands or algorithms specific to this catalog's GPUs. The recipes of other
// layers are in standard_recipes.h. The network has already checked the shapes.

#include <vector>

#include "src/ops/classic/catalog.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::classic {

// The single algorithm of ops that are neither convolutions nor matrix products.
std::vector<Algorithm> direct();

LayerRecipe make_recipe(const ConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms);
// The layer uses the algorithms of the convolution from its output to its input, with the forward pass and
// the data gradient exchanged.
LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms);
// Matrix products in this precision, which need no workspace.
LayerRecipe make_recipe(const FullyConnectedSpec& spec, const ops::LayerTypes& types, Mode mode,
                        ProductPrecision precision);
// The layer saves nothing: its backward pass reads X, Y and dY.
LayerRecipe make_recipe(const PoolingSpec& spec, const ops::LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const LrnSpec& spec, const ops::LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const UpsamplingSpec& spec, const ops::LayerTypes& types, Mode mode);

}  // namespace vdnn::classic
