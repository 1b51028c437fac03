// Convolutions and fully connected layers: Y = W X + b.

#include "src/ops/classic/convolution_algorithms.h"
#include "src/ops/classic/layers.h"

namespace vdnn::classic {

namespace {

std::int64_t elements_a_filter(const TensorType& filter) {
  return static_cast<std::int64_t>(filter.elements()) / filter.dims[0];
}

// What each pass is computed by, asked of those that there are, and what each of them costs.
struct Passes {
  std::function<std::vector<Algorithm>(Direction)> algorithms;
  Cost cost;
};

LayerRecipe filter_layer(const TensorType& filter, bool has_bias, const Passes& passes, Mode mode) {
  using enum OperandRole;
  const TensorType bias{.dims = {filter.dims[0]}};
  LayerRecipe recipe;
  recipe.parameters = {{.name = "filter",
                        .type = filter,
                        .storage_bytes = filter.bytes(),
                        .initializer = Initializer::kHeNormal,
                        .fan_in = elements_a_filter(filter),
                        .storage_layout = "dense"}};
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {{kInput, 0}, {kParameter, 0}},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = passes.algorithms(Direction::kForward),
                     .cost = passes.cost}};
  if (mode == Mode::kTraining) {
    recipe.backward = {{.direction = Direction::kBackwardFilter,
                        .reads = {{kInput, 0}, {kOutputGradient, 0}},
                        .writes = {{kParameterGradient, 0}},
                        .may_overwrite = {},
                        .algorithms = passes.algorithms(Direction::kBackwardFilter),
                        .cost = passes.cost},
                       {.direction = Direction::kBackwardData,
                        .reads = {{kOutputGradient, 0}, {kParameter, 0}},
                        .writes = {{kInputGradient, 0}},
                        .may_overwrite = {},
                        .algorithms = passes.algorithms(Direction::kBackwardData),
                        .cost = passes.cost}};
  }
  if (has_bias) {
    recipe.parameters.push_back(
        {.name = "bias", .type = bias, .storage_bytes = bias.bytes(), .storage_layout = "dense"});
    recipe.forward[0].reads.push_back({kParameter, 1});
    if (mode == Mode::kTraining) {
      recipe.backward[0].writes.push_back({kParameterGradient, 1});
    }
  }
  return recipe;
}

// Of K x C x window.
TensorType filter_type(std::int64_t filters, std::int64_t channels, const Dims& window) {
  TensorType type{.dims = {filters, channels}};
  type.dims.insert(type.dims.end(), window.begin(), window.end());
  return type;
}

}  // namespace

LayerRecipe make_recipe(const ConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms) {
  ops::require_count(types.inputs, 1, "inputs of a convolution");
  const TensorType& x = types.inputs[0];
  const Convolution convolution = ops::convolution_of(spec, x, types.outputs[0]);
  const Passes passes{.algorithms = [&](Direction pass) { return algorithms(convolution, pass); },
                      .cost = convolution_cost(convolution)};
  return filter_layer(filter_type(spec.filters, x.dims[1] / spec.groups, spec.kernel), spec.bias, passes,
                      mode);
}

LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode,
                        const ConvolutionAlgorithms& algorithms) {
  ops::require_count(types.inputs, 1, "inputs of a transposed convolution");
  const TensorType& x = types.inputs[0];
  const Convolution from_output = ops::convolution_of(spec, x, types.outputs[0]);
  const Passes passes{
      .algorithms = [&](Direction pass) { return algorithms(from_output, ops::exchanged(pass)); },
      .cost = convolution_cost(from_output)};
  return filter_layer(filter_type(spec.filters, x.dims[1], spec.kernel), spec.bias, passes, mode);
}

LayerRecipe make_recipe(const FullyConnectedSpec& spec, const ops::LayerTypes& types, Mode mode) {
  ops::require_count(types.inputs, 1, "inputs of a fully connected layer");
  const TensorType& x = types.inputs[0];
  TensorType weights{.dims = x.dims};
  weights.dims[0] = spec.outputs;
  const Passes passes{
      .algorithms = [](Direction) { return std::vector<Algorithm>{{.name = "gemm"}}; },
      .cost = {.flops = 2 * static_cast<double>(x.dims[0]) * static_cast<double>(weights.elements()),
               .bytes = static_cast<double>(x.bytes()) + static_cast<double>(types.outputs[0].bytes()) +
                        static_cast<double>(weights.bytes())}};
  return filter_layer(weights, spec.bias, passes, mode);
}

}  // namespace vdnn::classic
