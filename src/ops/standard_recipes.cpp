#include "src/ops/standard_recipes.h"

#include <cmath>
#include <utility>

#include "src/ops/layer_operands.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

// The layout of vectors and other parameters for which the device has no layout.
constexpr const char* kDenseStorage = "dense";

double bytes_of(const TensorType& type) {
  return static_cast<double>(type.bytes());
}

double elements_of(const TensorType& type) {
  return static_cast<double>(type.elements());
}

[[noreturn]] void reject(std::string_view layer, const std::string& why) {
  throw InvalidArgument(std::string(layer) + ": " + why);
}

// Requires one or more inputs and one output, all of one shape.
void require_one_shape(const LayerTypes& types, std::size_t inputs, std::string_view layer) {
  require_count(types.inputs, inputs, layer);
  require_count(types.outputs, 1, layer);
  require_channels_last(types.inputs, layer);
  require_channels_last(types.outputs, layer);
  for (const TensorType& input : types.inputs) {
    require_output(input, types.outputs[0].dims, layer);
  }
}

void require_channels(const TensorType& type, std::string_view layer) {
  if (type.dims.size() < 2) {
    reject(layer, to_string(type.dims) + " has no channels");
  }
}

void require_positive(float value, const char* name, std::string_view layer) {
  if (!(value > 0) || !std::isfinite(value)) {
    reject(layer, std::string(name) + " " + std::to_string(value) + " must be positive");
  }
}

// An op whose operands all have this type.
OpRecipe elementwise_op(const TensorType& type, double flops_each, Direction direction,
                        std::vector<Operand> reads, Operand write, std::vector<Overwrite> may_overwrite,
                        const std::vector<Algorithm>& algorithms) {
  const double operands = static_cast<double>(reads.size()) + 1;
  return {.direction = direction,
          .reads = std::move(reads),
          .writes = {write},
          .may_overwrite = std::move(may_overwrite),
          .algorithms = algorithms,
          .cost = {.flops = flops_each * elements_of(type), .bytes = operands * bytes_of(type)}};
}

// The recipe of an elementwise function whose gradient can be computed from Y.
LayerRecipe activation(const LayerTypes& types, double flops_each, Mode mode,
                       const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  const TensorType& type = types.inputs[0];
  LayerRecipe recipe;
  recipe.forward = {elementwise_op(type, flops_each, Direction::kForward, {{kInput, 0}}, {kOutput, 0},
                                   {{.write = 0, .read = 0}}, algorithms.forward)};
  if (mode == Mode::kTraining) {
    recipe.backward = {elementwise_op(type, flops_each, Direction::kBackwardData,
                                      {{kOutput, 0}, {kOutputGradient, 0}}, {kInputGradient, 0},
                                      {{.write = 0, .read = 1}}, algorithms.backward)};
  }
  return recipe;
}

// One value per channel.
ParameterRecipe channel_parameter(const char* name, std::int64_t channels, Initializer initializer,
                                  bool trainable) {
  const TensorType type{.dims = {channels}};
  return {.name = name,
          .type = type,
          .storage_bytes = type.bytes(),
          .initializer = initializer,
          .storage_layout = kDenseStorage,
          .trainable = trainable};
}

// In normalisations, scale and shift are parameters 0 and 1.
void add_scale_and_shift(LayerRecipe& recipe, std::int64_t channels) {
  recipe.parameters.push_back(channel_parameter("scale", channels, Initializer::kOne, true));
  recipe.parameters.push_back(channel_parameter("shift", channels, Initializer::kZero, true));
}

// Every value is read twice: to compute the statistics, and to apply them.
Cost normalisation_cost(const TensorType& type) {
  return {.flops = 7 * elements_of(type), .bytes = 3 * bytes_of(type)};
}

OpRecipe normalisation_backward(const TensorType& type, const std::vector<Algorithm>& algorithms) {
  using namespace normalization;
  return {.direction = Direction::kBackwardData,
          .reads = kBackward.read_list(),
          .writes = kBackward.write_list(),
          .may_overwrite = {{.write = kBackward.write(kDX), .read = kBackward.read(kDY)}},
          .algorithms = algorithms,
          .cost = {.flops = 11 * elements_of(type), .bytes = 5 * bytes_of(type)}};
}

}  // namespace

LayerRecipe standard_recipe(const ReluSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  require_one_shape(types, 1, "relu");
  if (!(spec.negative_slope >= 0) || !std::isfinite(spec.negative_slope)) {
    reject("relu", "negative slope " + std::to_string(spec.negative_slope) + " must be 0 or more");
  }
  return activation(types, 1, mode, algorithms);
}

LayerRecipe standard_recipe(const SigmoidSpec&, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  require_one_shape(types, 1, "sigmoid");
  return activation(types, 4, mode, algorithms);
}

LayerRecipe standard_recipe(const AddSpec&, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  require_one_shape(types, 2, "add");
  const TensorType& type = types.outputs[0];
  LayerRecipe recipe;
  recipe.forward = {elementwise_op(type, 1, Direction::kForward, {{kInput, 0}, {kInput, 1}}, {kOutput, 0},
                                   {{.write = 0, .read = 0}, {.write = 0, .read = 1}}, algorithms.forward)};
  if (mode == Mode::kTraining) {
    for (const std::uint32_t input : {0U, 1U}) {
      recipe.backward.push_back(elementwise_op(type, 1, Direction::kBackwardData, {{kOutputGradient, 0}},
                                               {kInputGradient, input}, {{.write = 0, .read = 0}},
                                               algorithms.backward));
    }
  }
  return recipe;
}

LayerRecipe standard_recipe(const ConversionSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  constexpr const char* kLayer = "conversion";
  require_one_shape(types, 1, kLayer);
  if (types.outputs[0].data_type != spec.to) {
    reject(kLayer,
           std::string("makes ") + to_string(spec.to) + ", not " + to_string(types.outputs[0].data_type));
  }
  const auto pass = [&](Direction direction, Operand read, Operand write, const std::vector<Algorithm>& own) {
    return OpRecipe{.direction = direction,
                    .reads = {read},
                    .writes = {write},
                    .may_overwrite = {},
                    .algorithms = own,
                    .cost = {.flops = elements_of(types.inputs[0]),
                             .bytes = bytes_of(types.inputs[0]) + bytes_of(types.outputs[0])}};
  };
  LayerRecipe recipe;
  recipe.forward = {pass(Direction::kForward, {kInput, 0}, {kOutput, 0}, algorithms.forward)};
  if (mode == Mode::kTraining) {
    recipe.backward = {
        pass(Direction::kBackwardData, {kOutputGradient, 0}, {kInputGradient, 0}, algorithms.backward)};
  }
  return recipe;
}

LayerRecipe standard_recipe(const GradientScalingSpec&, const LayerTypes& types, Mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  constexpr const char* kLayer = "loss scaling";
  require_count(types.inputs, 2, kLayer);
  require_fp32_channels_last(types.inputs, kLayer);
  require_output(types.outputs[0], types.inputs[0].dims, kLayer);
  LayerRecipe recipe;
  recipe.forward = {elementwise_op(types.outputs[0], 1, Direction::kForward, {{kInput, 0}, {kInput, 1}},
                                   {kOutput, 0}, {{.write = 0, .read = 0}}, algorithms.forward)};
  return recipe;
}

LayerRecipe standard_recipe(const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  constexpr const char* kLayer = "loss scaling";
  require_positive(spec.scaling.initial, "the initial scale", kLayer);
  require_positive(spec.scaling.growth, "the growth", kLayer);
  require_positive(spec.scaling.backoff, "the backoff", kLayer);
  if (spec.scaling.growth_interval == 0) {
    reject(kLayer, "the growth interval must be positive");
  }
  require_count(types.inputs, 2, kLayer);
  LayerRecipe recipe;
  recipe.forward = {
      {.direction = Direction::kUpdate,
       .reads = {{kInput, 0}, {kInput, 1}},
       .writes = {{kOutput, 0}},
       .may_overwrite = {{.write = 0, .read = 0}},
       .algorithms = algorithms.forward,
       .cost = {.flops = 4, .bytes = 2 * bytes_of(types.inputs[0]) + bytes_of(types.inputs[1])}}};
  return recipe;
}

LayerRecipe standard_recipe(const ConcatenationSpec&, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  constexpr const char* kLayer = "concatenation";
  require_count(types.outputs, 1, kLayer);
  require_channels_last(types.inputs, kLayer);
  require_channels_last(types.outputs, kLayer);
  if (types.inputs.size() < 2) {
    reject(kLayer, "two inputs or more expected, got " + std::to_string(types.inputs.size()));
  }
  require_channels(types.outputs[0], kLayer);
  std::int64_t channels = 0;
  LayerRecipe recipe;
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = algorithms.forward,
                     .cost = {.bytes = 2 * bytes_of(types.outputs[0])}}};
  for (std::uint32_t input = 0; input < types.inputs.size(); ++input) {
    const TensorType& type = types.inputs[input];
    require_channels(type, kLayer);
    Dims alike = types.outputs[0].dims;
    alike[1] = type.dims[1];
    require_output(type, alike, kLayer);
    channels += type.dims[1];
    recipe.forward[0].reads.push_back({kInput, input});
    if (mode == Mode::kTraining) {
      recipe.backward.push_back({.direction = Direction::kBackwardData,
                                 .reads = {{kOutputGradient, 0}},
                                 .writes = {{kInputGradient, input}},
                                 .may_overwrite = {},
                                 .algorithms = algorithms.backward,
                                 .cost = {.bytes = 2 * bytes_of(type)}});
    }
  }
  Dims expected = types.outputs[0].dims;
  expected[1] = channels;
  require_output(types.outputs[0], expected, kLayer);
  return recipe;
}

namespace {

void check(const UpsamplingSpec& spec, const LayerTypes& types) {
  constexpr const char* kLayer = "upsampling";
  require_one_to_one(types, kLayer);
  Dims output = types.inputs[0].dims;
  const std::size_t rank = types.inputs[0].spatial_rank();
  if (rank < 1 || rank > 3 || spec.factors.size() != rank) {
    reject(kLayer, "one to three spatial dimensions expected and a factor for each, got " +
                       to_string(output) + " and factors " + to_string(spec.factors));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    if (spec.factors[i] < 1) {
      reject(kLayer, "factor " + std::to_string(spec.factors[i]) + " must be positive");
    }
    output[i + 2] *= spec.factors[i];
  }
  require_output(types.outputs[0], output, kLayer);
}

}  // namespace

LayerRecipe standard_recipe(const UpsamplingSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  check(spec, types);
  const TensorType& output = types.outputs[0];
  // A product and a sum for each neighbour of an output. In d dimensions, an output has 2^d neighbours.
  const int neighbours = spec.mode == UpsamplingMode::kLinear ? 1 << spec.factors.size() : 0;
  const Cost cost{.flops = 2.0 * neighbours * elements_of(output),
                  .bytes = bytes_of(types.inputs[0]) + bytes_of(output)};
  LayerRecipe recipe;
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {{kInput, 0}},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = algorithms.forward,
                     .cost = cost}};
  if (mode == Mode::kTraining) {
    recipe.backward = {{.direction = Direction::kBackwardData,
                        .reads = {{kOutputGradient, 0}},
                        .writes = {{kInputGradient, 0}},
                        .may_overwrite = {},
                        .algorithms = algorithms.backward,
                        .cost = cost}};
  }
  return recipe;
}

LayerRecipe standard_recipe(const DropoutSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  require_one_shape(types, 1, "dropout");
  if (!(spec.probability >= 0) || !(spec.probability < 1)) {
    reject("dropout",
           "probability " + std::to_string(spec.probability) + " must be at least 0 and less than 1");
  }
  const TensorType& type = types.inputs[0];
  const bool training = mode == Mode::kTraining;
  LayerRecipe recipe;
  recipe.forward = {elementwise_op(type, training ? 2 : 0, Direction::kForward, {{kInput, 0}}, {kOutput, 0},
                                   {{.write = 0, .read = 0}}, algorithms.forward)};
  if (training) {
    recipe.backward = {elementwise_op(type, 2, Direction::kBackwardData, {{kOutputGradient, 0}},
                                      {kInputGradient, 0}, {{.write = 0, .read = 0}}, algorithms.backward)};
  }
  return recipe;
}

LayerRecipe standard_recipe(const GroupNormalizationSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using namespace normalization;
  constexpr const char* kLayer = "group normalisation";
  require_one_shape(types, 1, kLayer);
  require_positive(spec.epsilon, "epsilon", kLayer);
  const TensorType& type = types.inputs[0];
  require_channels(type, kLayer);
  if (spec.groups < 1 || type.dims[1] % spec.groups != 0) {
    reject(kLayer,
           std::to_string(spec.groups) + " groups must divide the channels of " + to_string(type.dims));
  }
  LayerRecipe recipe;
  add_scale_and_shift(recipe, type.dims[1]);
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = kForward.read_list(),
                     .writes = kForward.write_list(),
                     .may_overwrite = {},
                     .algorithms = algorithms.forward,
                     .cost = normalisation_cost(type)}};
  if (mode == Mode::kInference) {
    recipe.forward[0].writes = {kY};
    recipe.forward[0].may_overwrite = {{.write = kForward.write(kY), .read = kForward.read(kX)}};
    return recipe;
  }
  const TensorType statistics{.dims = {type.dims[0], spec.groups}};
  recipe.saved = {{.name = "mean", .type = statistics}, {.name = "reciprocal_deviation", .type = statistics}};
  recipe.backward = {normalisation_backward(type, algorithms.backward)};
  return recipe;
}

namespace {

// The op that moves the running statistics.
OpRecipe follow(const TensorType& statistics, const std::vector<Algorithm>& algorithms) {
  using namespace normalization;
  return {
      .direction = Direction::kForward,
      .reads = kFollow.read_list(),
      .writes = kFollow.write_list(),
      .may_overwrite = {{.write = kFollow.write(kRunningMean), .read = kFollow.read(kRunningMean)},
                        {.write = kFollow.write(kRunningVariance), .read = kFollow.read(kRunningVariance)}},
      .algorithms = algorithms,
      .cost = {.flops = 7 * elements_of(statistics), .bytes = 6 * bytes_of(statistics)}};
}

// Adds the ops for batches of several ranks. Their costs count passes over X, dY and Y.
void synchronize(LayerRecipe& recipe, const TensorType& type,
                 const BatchNormalizationAlgorithms& algorithms) {
  using namespace normalization;
  const TensorType statistics{.dims = {type.dims[1]}};
  recipe.saved = {{.name = "mean", .type = statistics, .summed_over_ranks = true},
                  {.name = "variance", .type = statistics, .summed_over_ranks = true},
                  {.name = "own_mean", .type = statistics},
                  {.name = "own_variance", .type = statistics}};
  recipe.gradient_statistics = {
      {.name = "gradient_means", .type = {.dims = {2, type.dims[1]}}, .summed_over_ranks = true}};
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = kStatistics.read_list(),
                     .writes = kStatistics.write_list(),
                     .may_overwrite = {},
                     .algorithms = algorithms.statistics,
                     .cost = {.flops = 3 * elements_of(type), .bytes = bytes_of(type)}},
                    {.direction = Direction::kForward,
                     .reads = kVarianceShare.read_list(),
                     .writes = kVarianceShare.write_list(),
                     .may_overwrite = {},
                     .algorithms = algorithms.variance,
                     .cost = {.flops = 4 * elements_of(statistics), .bytes = 4 * bytes_of(statistics)}},
                    {.direction = Direction::kForward,
                     .reads = kNormalize.read_list(),
                     .writes = kNormalize.write_list(),
                     .may_overwrite = {},
                     .algorithms = algorithms.forward,
                     .cost = {.flops = 4 * elements_of(type), .bytes = 2 * bytes_of(type)}},
                    follow(statistics, algorithms.follow)};
  recipe.backward = {{.direction = Direction::kBackwardFilter,
                      .reads = kSums.read_list(),
                      .writes = kSums.write_list(),
                      .may_overwrite = {},
                      .algorithms = algorithms.sums,
                      .cost = {.flops = 4 * elements_of(type), .bytes = 2 * bytes_of(type)}},
                     {.direction = Direction::kBackwardData,
                      .reads = kGradient.read_list(),
                      .writes = kGradient.write_list(),
                      .may_overwrite = {{.write = kGradient.write(kDX), .read = kGradient.read(kDY)}},
                      .algorithms = algorithms.backward,
                      .cost = {.flops = 7 * elements_of(type), .bytes = 3 * bytes_of(type)}}};
}

}  // namespace

LayerRecipe standard_recipe(const BatchNormalizationSpec& spec, const LayerTypes& types, Mode mode,
                            const BatchNormalizationAlgorithms& algorithms) {
  using namespace normalization;
  constexpr const char* kLayer = "batch normalisation";
  require_one_shape(types, 1, kLayer);
  require_positive(spec.epsilon, "epsilon", kLayer);
  if (!(spec.momentum >= 0) || !(spec.momentum <= 1)) {
    reject(kLayer, "momentum " + std::to_string(spec.momentum) + " must be between 0 and 1");
  }
  const TensorType& type = types.inputs[0];
  require_channels(type, kLayer);
  const std::int64_t channels = type.dims[1];
  if (spec.ranks < 1) {
    reject(kLayer, "the number of ranks must be positive");
  }
  if (type.elements() == static_cast<std::uint64_t>(channels)) {
    reject(kLayer, "one element per channel has no variance, got " + to_string(type.dims));
  }
  LayerRecipe recipe;
  add_scale_and_shift(recipe, channels);
  recipe.parameters.push_back(channel_parameter("running_mean", channels, Initializer::kZero, false));
  recipe.parameters.push_back(channel_parameter("running_variance", channels, Initializer::kOne, false));
  if (mode == Mode::kInference) {
    recipe.forward = {{.direction = Direction::kForward,
                       .reads = kInference.read_list(),
                       .writes = kInference.write_list(),
                       .may_overwrite = {{.write = kInference.write(kY), .read = kInference.read(kX)}},
                       .algorithms = algorithms.forward,
                       .cost = {.flops = 2 * elements_of(type), .bytes = 2 * bytes_of(type)}}};
    return recipe;
  }
  if (spec.ranks > 1) {
    synchronize(recipe, type, algorithms);
    return recipe;
  }
  const TensorType statistics{.dims = {channels}};
  recipe.saved = {{.name = "mean", .type = statistics}, {.name = "variance", .type = statistics}};
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = kForward.read_list(),
                     .writes = kForward.write_list(),
                     .may_overwrite = {},
                     .algorithms = algorithms.forward,
                     .cost = normalisation_cost(type)},
                    follow(statistics, algorithms.follow)};
  recipe.backward = {normalisation_backward(type, algorithms.backward)};
  return recipe;
}

namespace {

void require_ops(const std::vector<OpRecipe>& ops, bool forward, const std::string& kind) {
  for (const OpRecipe& op : ops) {
    if (op.algorithms.empty()) {
      reject(kind, "an op without an algorithm");
    }
    if ((op.direction == Direction::kForward) != forward || op.direction == Direction::kUpdate) {
      reject(kind, "an op whose direction is not that of its pass");
    }
  }
}

void fill_in_storage(ParameterRecipe& parameter, const std::string& kind) {
  require_fp32_channels_last({&parameter.type, 1}, kind);
  const std::uint64_t bytes = parameter.type.bytes();
  if (parameter.storage_bytes != 0 && parameter.storage_bytes != bytes) {
    reject(kind, "parameter " + parameter.name + " has " + std::to_string(parameter.storage_bytes) +
                     " bytes of storage, not the " + std::to_string(bytes) + " of dense storage");
  }
  parameter.storage_bytes = bytes;
  parameter.storage_layout = kDenseStorage;
}

}  // namespace

LayerRecipe custom_recipe(const CustomSpec& spec, const LayerTypes& types, Mode mode,
                          const std::string& device, int threads) {
  if (spec.layer == nullptr) {
    throw InvalidArgument("no custom layer given");
  }
  const std::string kind = spec.layer->kind();
  require_count(types.outputs, 1, "outputs of " + kind);
  require_fp32_channels_last(types.inputs, kind);
  require_fp32_channels_last(types.outputs, kind);
  LayerRecipe recipe = spec.layer->describe({.inputs = types.inputs,
                                             .output = types.outputs[0],
                                             .device = device,
                                             .threads = threads,
                                             .mode = mode});
  if (recipe.forward.empty()) {
    reject(kind, "no op in its forward pass");
  }
  if (mode == Mode::kInference && (!recipe.backward.empty() || !recipe.saved.empty())) {
    reject(kind, "saves something or has a backward pass in inference");
  }
  require_ops(recipe.forward, true, kind);
  require_ops(recipe.backward, false, kind);
  for (ParameterRecipe& parameter : recipe.parameters) {
    fill_in_storage(parameter, kind);
  }
  return recipe;
}

}  // namespace vdnn::ops
