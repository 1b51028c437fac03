// Convolutions and fully connected layers: Y = W X + b.

#include "src/ops/classic/layers.h"
#include "src/ops/filter_layer.h"
#include "src/ops/product_names.h"

namespace vdnn::classic {

namespace {

LayerRecipe filter_recipe(const ops::FilterShape& shape, const ops::PassAlgorithms& algorithms, Mode mode) {
  return ops::filter_layer_recipe(
      shape, {.filter_bytes = shape.filter_type().bytes(), .filter_layout = "dense", .bias_layout = "dense"},
      algorithms, mode);
}

}  // namespace

LayerRecipe make_recipe(const ConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms) {
  const ops::FilterShape shape = ops::filter_shape(spec, types);
  const ops::Convolution convolution = ops::convolution_of(spec, shape.input, shape.output);
  return filter_recipe(
      shape, [&](Direction pass) { return algorithms(convolution, pass, shape.input.data_type); }, mode);
}

LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms) {
  const ops::FilterShape shape = ops::filter_shape(spec, types);
  const ops::Convolution from_output = ops::convolution_of(spec, shape.input, shape.output);
  return filter_recipe(
      shape,
      [&](Direction pass) { return algorithms(from_output, ops::exchanged(pass), shape.input.data_type); },
      mode);
}

LayerRecipe make_recipe(const FullyConnectedSpec& spec, const ops::LayerTypes& types, Mode mode,
                        ProductPrecision precision) {
  const bool tf32 = precision == ProductPrecision::kTf32 && !is_narrow(types.inputs[0].data_type);
  const char* const name = tf32 ? ops::kTf32MatrixProduct : ops::kMatrixProduct;
  LayerRecipe recipe = filter_recipe(
      ops::filter_shape(spec, types), [&](Direction) { return std::vector<Algorithm>{{.name = name}}; },
      mode);
  for (std::vector<OpRecipe>* const pass : {&recipe.forward, &recipe.backward}) {
    for (OpRecipe& op : *pass) {
      op.cost.precision = ops::product_precision(types.inputs[0].data_type, precision);
    }
  }
  return recipe;
}

}  // namespace vdnn::classic
