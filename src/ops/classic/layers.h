#pragma once
// Recipes of the layers that have operands or algorithms of their own on this catalog's GPUs; the others are
// standard_recipes.h's. Shapes are those of a network, which has checked them.

#include <vector>

#include "src/ops/classic/catalog.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::classic {

// The one way to compute everything that is neither a convolution nor a matrix product.
std::vector<Algorithm> direct();

LayerRecipe make_recipe(const ConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms);
// The passes of the convolution from its output to its input, exchanged.
LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms);
// Matrix products in this precision, which need no workspace.
LayerRecipe make_recipe(const FullyConnectedSpec& spec, const ops::LayerTypes& types, Mode mode,
                        ProductPrecision precision);
// Saves nothing: backward reads X, Y and dY.
LayerRecipe make_recipe(const PoolingSpec& spec, const ops::LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const LrnSpec& spec, const ops::LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const UpsamplingSpec& spec, const ops::LayerTypes& types, Mode mode);

}  // namespace vdnn::classic
