// Convolutions and fully connected layers: Y = W X + b.

#include "src/ops/classic/convolution_algorithms.h"
#include "src/ops/classic/layers.h"

namespace vdnn::classic {

namespace {

Dims space_of(const TensorType& type) {
  return {type.dims.begin() + 2, type.dims.end()};
}

std::int64_t elements_a_filter(const TensorType& filter) {
  return static_cast<std::int64_t>(filter.elements()) / filter.dims[0];
}

// What the three passes are computed by, and what each of them costs.
struct Passes {
  std::vector<Algorithm> forward;
  std::vector<Algorithm> backward_filter;
  std::vector<Algorithm> backward_data;
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
                     .algorithms = passes.forward,
                     .cost = passes.cost}};
  if (mode == Mode::kTraining) {
    recipe.backward = {{.direction = Direction::kBackwardFilter,
                        .reads = {{kInput, 0}, {kOutputGradient, 0}},
                        .writes = {{kParameterGradient, 0}},
                        .may_overwrite = {},
                        .algorithms = passes.backward_filter,
                        .cost = passes.cost},
                       {.direction = Direction::kBackwardData,
                        .reads = {{kOutputGradient, 0}, {kParameter, 0}},
                        .writes = {{kInputGradient, 0}},
                        .may_overwrite = {},
                        .algorithms = passes.backward_data,
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

LayerRecipe make_recipe(const ConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode) {
  ops::require_count(types.inputs, 1, "inputs of a convolution");
  const TensorType& x = types.inputs[0];
  const TensorType& y = types.outputs[0];
  const Convolution convolution{.batch = x.dims[0],
                                .input_channels = x.dims[1],
                                .output_channels = spec.filters,
                                .input = space_of(x),
                                .output = space_of(y),
                                .kernel = spec.kernel,
                                .stride = spec.stride,
                                .padding = spec.padding,
                                .dilation = spec.dilation,
                                .groups = spec.groups};
  const Passes passes{.forward = convolution_algorithms(convolution, Direction::kForward),
                      .backward_filter = convolution_algorithms(convolution, Direction::kBackwardFilter),
                      .backward_data = convolution_algorithms(convolution, Direction::kBackwardData),
                      .cost = convolution_cost(convolution)};
  return filter_layer(filter_type(spec.filters, x.dims[1] / spec.groups, spec.kernel), spec.bias, passes,
                      mode);
}

LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const ops::LayerTypes& types, Mode mode) {
  ops::require_count(types.inputs, 1, "inputs of a transposed convolution");
  const TensorType& x = types.inputs[0];
  const TensorType& y = types.outputs[0];
  const Convolution from_output{.batch = x.dims[0],
                                .input_channels = spec.filters,
                                .output_channels = x.dims[1],
                                .input = space_of(y),
                                .output = space_of(x),
                                .kernel = spec.kernel,
                                .stride = spec.stride,
                                .padding = spec.padding,
                                .dilation = {}};
  const Passes passes{.forward = convolution_algorithms(from_output, Direction::kBackwardData),
                      .backward_filter = convolution_algorithms(from_output, Direction::kBackwardFilter),
                      .backward_data = convolution_algorithms(from_output, Direction::kForward),
                      .cost = convolution_cost(from_output)};
  return filter_layer(filter_type(spec.filters, x.dims[1], spec.kernel), spec.bias, passes, mode);
}

LayerRecipe make_recipe(const FullyConnectedSpec& spec, const ops::LayerTypes& types, Mode mode) {
  ops::require_count(types.inputs, 1, "inputs of a fully connected layer");
  const TensorType& x = types.inputs[0];
  TensorType weights{.dims = x.dims};
  weights.dims[0] = spec.outputs;
  const std::vector<Algorithm> gemm{{.name = "gemm"}};
  const Passes passes{
      .forward = gemm,
      .backward_filter = gemm,
      .backward_data = gemm,
      .cost = {.flops = 2 * static_cast<double>(x.dims[0]) * static_cast<double>(weights.elements()),
               .bytes = static_cast<double>(x.bytes()) + static_cast<double>(types.outputs[0].bytes()) +
                        static_cast<double>(weights.bytes())}};
  return filter_layer(weights, spec.bias, passes, mode);
}

}  // namespace vdnn::classic
