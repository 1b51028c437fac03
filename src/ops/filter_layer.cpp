#include "src/ops/filter_layer.h"

#include <algorithm>
#include <optional>

#include "src/ops/layer_operands.h"
#include "src/ops/product_names.h"
#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

// K x C x window.
Dims filter_dims(std::int64_t filters, std::int64_t channels, const Dims& window) {
  Dims dims{filters, channels};
  dims.insert(dims.end(), window.begin(), window.end());
  return dims;
}

void require_filters(std::int64_t filters, const std::string& layer) {
  if (filters < 1) {
    throw InvalidArgument(layer + ": " + std::to_string(filters) + " filters");
  }
}

void check(const ConvolutionSpec& spec, const LayerTypes& types) {
  constexpr const char* kLayer = "convolution";
  require_one_to_one(types, kLayer);
  const TensorType& input = types.inputs[0];
  require_filters(spec.filters, kLayer);
  require_output(types.outputs[0],
                 window_output(input.dims, spec.filters,
                               {spec.kernel, spec.stride, spec.padding, spec.dilation}, kLayer),
                 kLayer);
  if (spec.groups < 1 || input.dims[1] % spec.groups != 0 || spec.filters % spec.groups != 0) {
    throw InvalidArgument("convolution: " + std::to_string(spec.groups) + " groups do not divide " +
                          std::to_string(input.dims[1]) + " channels and " + std::to_string(spec.filters) +
                          " filters");
  }
}

void check(const TransposedConvolutionSpec& spec, const LayerTypes& types) {
  constexpr const char* kLayer = "transposed convolution";
  require_one_to_one(types, kLayer);
  const Dims& input = types.inputs[0].dims;
  require_filters(spec.filters, kLayer);
  require_window(input, {spec.kernel, spec.stride, spec.padding, {}}, kLayer);
  Dims output{input[0], spec.filters};
  for (std::size_t i = 0; i < spec.kernel.size(); ++i) {
    output.push_back((input[i + 2] - 1) * spec.stride[i] - 2 * spec.padding[i] + spec.kernel[i]);
  }
  require_output(types.outputs[0], output, kLayer);
}

void check(const FullyConnectedSpec& spec, const LayerTypes& types) {
  constexpr const char* kLayer = "fully connected";
  require_one_to_one(types, kLayer);
  const Dims& input = types.inputs[0].dims;
  if (spec.outputs < 1 || input.size() < 2) {
    throw InvalidArgument("fully connected: " + std::to_string(spec.outputs) + " outputs from " +
                          to_string(input));
  }
  require_output(types.outputs[0], {input[0], spec.outputs}, kLayer);
}

// Sets the counts of products. An output sums one product per element of a filter.
void count_products(FilterShape& shape) {
  shape.fan_in = static_cast<std::int64_t>(shape.filter_type().elements()) / shape.filter[0];
  shape.multiply_adds = static_cast<double>(shape.output.elements()) * static_cast<double>(shape.fan_in);
}

std::vector<ParameterRecipe> parameters_of(const FilterShape& shape, const FilterStorage& storage) {
  const DataType read_as = shape.input.data_type;
  std::vector<ParameterRecipe> parameters{
      {.name = "filter",
       .type = shape.filter_type(),
       .storage_bytes = storage.filter_bytes,
       .initializer = Initializer::kHeNormal,
       .fan_in = shape.fan_in,
       .storage_layout = storage.filter_layout,
       .copy = is_narrow(read_as) ? std::optional(read_as) : std::nullopt}};
  if (shape.bias) {
    const TensorType bias = shape.bias_type();
    parameters.push_back(
        {.name = "bias", .type = bias, .storage_bytes = bias.bytes(), .storage_layout = storage.bias_layout});
  }
  return parameters;
}

Cost cost_of(const FilterShape& shape, const FilterStorage& storage, Direction pass) {
  // The gradient of the filter is fp32.
  const std::uint64_t filter_bytes =
      pass == Direction::kBackwardFilter
          ? storage.filter_bytes
          : storage.filter_bytes / sizeof(float) * size_of(shape.input.data_type);
  Cost cost{.flops = 2 * shape.multiply_adds,
            .bytes = static_cast<double>(shape.input.bytes()) + static_cast<double>(shape.output.bytes()) +
                     static_cast<double>(filter_bytes),
            .arithmetic = shape.stride.empty() ? Arithmetic::kMatrixProduct : Arithmetic::kConvolution,
            .precision = product_precision(shape.input.data_type)};
  if (shape.bias && pass != Direction::kBackwardData) {
    cost.bytes += static_cast<double>(shape.bias_type().bytes());
  }
  return cost;
}

}  // namespace

FilterShape filter_shape(const ConvolutionSpec& spec, const LayerTypes& types) {
  check(spec, types);
  FilterShape shape{.input = types.inputs[0],
                    .output = types.outputs[0],
                    .filter = filter_dims(spec.filters, types.inputs[0].dims[1] / spec.groups, spec.kernel),
                    .stride = spec.stride,
                    .padding = spec.padding,
                    .groups = spec.groups,
                    .bias = spec.bias};
  count_products(shape);
  return shape;
}

FilterShape filter_shape(const TransposedConvolutionSpec& spec, const LayerTypes& types) {
  check(spec, types);
  FilterShape shape{.input = types.inputs[0],
                    .output = types.outputs[0],
                    .filter = filter_dims(spec.filters, types.inputs[0].dims[1], spec.kernel),
                    .stride = spec.stride,
                    .padding = spec.padding,
                    .bias = spec.bias};
  const double reach = static_cast<double>(spec.filters) * window_elements(spec.kernel);
  shape.multiply_adds = static_cast<double>(shape.input.elements()) * reach;
  // With a stride, each output receives fewer products than the window has taps.
  shape.fan_in = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(shape.filter[1]) * window_elements(spec.kernel) /
                                   window_elements(spec.stride)));
  return shape;
}

FilterShape filter_shape(const FullyConnectedSpec& spec, const LayerTypes& types) {
  check(spec, types);
  FilterShape shape{.input = types.inputs[0],
                    .output = types.outputs[0],
                    .filter = types.inputs[0].dims,
                    .bias = spec.bias};
  shape.filter[0] = spec.outputs;
  count_products(shape);
  return shape;
}

LayerRecipe filter_layer_recipe(const FilterShape& shape, const FilterStorage& storage,
                                const PassAlgorithms& algorithms, Mode mode) {
  using namespace filter;
  const auto pass = [&](Direction direction, std::vector<Operand> reads, std::vector<Operand> writes) {
    return OpRecipe{.direction = direction,
                    .reads = std::move(reads),
                    .writes = std::move(writes),
                    .may_overwrite = {},
                    .algorithms = algorithms(direction),
                    .cost = cost_of(shape, storage, direction)};
  };
  LayerRecipe recipe;
  recipe.parameters = parameters_of(shape, storage);
  recipe.forward = {pass(Direction::kForward, {kX, kWeights}, {kY})};
  if (mode == Mode::kTraining) {
    recipe.backward = {pass(Direction::kBackwardFilter, {kX, kDY}, {kDWeights}),
                       pass(Direction::kBackwardData, {kDY, kWeights}, {kDX})};
  }
  if (shape.bias) {
    recipe.forward[0].reads.push_back(kBias);
    if (mode == Mode::kTraining) {
      recipe.backward[0].writes.push_back(kDBias);
    }
  }
  return recipe;
}

}  // namespace vdnn::ops
