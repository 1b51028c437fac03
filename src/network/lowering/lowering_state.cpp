#include "src/network/lowering/lowering_state.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "src/tape/order_costs.h"

namespace vdnn::lowering {

namespace {

// If a recipe does not specify an algorithm's cost, the cost is derived from the previous algorithm's in the
// library's order.
std::vector<Algorithm> with_costs(std::vector<Algorithm> algorithms, const Cost& cost) {
  Cost previous = cost;
  for (std::size_t rank = 0; rank < algorithms.size(); ++rank) {
    if (rank > 0 && !algorithms[rank].cost) {
      algorithms[rank].cost = cost_of_next(previous);
    }
    previous = algorithms[rank].cost.value_or(cost);
  }
  return algorithms;
}

// Returns the loss `spec` with its gradients multiplied by `factor`.
OpSpec scaled(OpSpec spec, float factor) {
  std::visit(
      [factor](auto& loss) {
        if constexpr (requires { loss.weight; }) {
          loss.weight *= factor;
        }
      },
      spec);
  return spec;
}

}  // namespace

TensorType floats(std::size_t bytes) {
  return {.dims = {static_cast<std::int64_t>(bytes / sizeof(float))}};
}

LoweringState::LoweringState(Network of_network, const OpCatalog& of_device, const TrainingOptions* options)
    : network(std::move(of_network)),
      catalog(of_device),
      training(options),
      layers(network.layers().size()),
      feature_maps(network.feature_maps(), kNone),
      gradients(network.feature_maps()) {
  find_ways_to_losses();
}

void LoweringState::find_ways_to_losses() {
  std::vector<bool> read(
      network.feature_maps());  // by feature map: whether a layer on a path to a loss reads it
  reaches_loss.assign(layers.size(), false);
  for (auto id = static_cast<std::uint32_t>(layers.size()); id-- > 0;) {
    reaches_loss[id] = is_loss(layer(id).spec) || read[layer(id).output];
    for (const std::uint32_t input : layer(id).inputs) {
      read[input] = read[input] || reaches_loss[id];
    }
  }
}

OpSpec LoweringState::spec_of(std::uint32_t id) const {
  OpSpec spec = layer(id).spec;
  if (auto* const normalization = std::get_if<BatchNormalizationSpec>(&spec)) {
    normalization->ranks = training != nullptr && training->sync_batch_normalization ? training->ranks : 1;
  } else if (training != nullptr && is_loss(spec)) {
    const auto batches = static_cast<float>(training->ranks) * static_cast<float>(training->micro_steps);
    return scaled(std::move(spec), 1 / batches);
  }
  return spec;
}

std::vector<TensorType> LoweringState::input_types(std::uint32_t id) const {
  std::vector<TensorType> types;
  for (const std::uint32_t input : layer(id).inputs) {
    types.push_back(network.type(input));
  }
  return types;
}

ValueId LoweringState::declare(std::string name, ValueKind kind, const TensorType& type,
                               std::uint64_t bytes) {
  parts.values.push_back({std::move(name), kind, type, bytes});
  return static_cast<ValueId>(parts.values.size() - 1);
}

PassedOn LoweringState::passed_on(std::uint32_t id, const Operand& operand) {
  LayerState& mine = layers[id];
  if (operand.role == OperandRole::kSaved) {
    return {mine.recipe.saved[operand.index], mine.saved[operand.index]};
  }
  return {mine.recipe.gradient_statistics[operand.index], mine.gradient_statistics[operand.index]};
}

ValueId LoweringState::declare_passed_on(std::uint32_t id, const Operand& operand) {
  const auto [recipe, value] = passed_on(id, operand);
  std::string name = layer(id).name + "." + recipe.name;
  if (recipe.summed_over_ranks) {
    name += ".local";
  }
  const ValueKind kind =
      operand.role == OperandRole::kSaved ? ValueKind::kSaved : ValueKind::kGradientStatistic;
  value = declare(std::move(name), kind, recipe.type, recipe.type.bytes());
  return value;
}

// The value that an op of layer `id` reads as `operand`; kNone if no op has made that value yet.
ValueId LoweringState::read(std::uint32_t id, const Operand& operand) const {
  const LayerState& mine = layers[id];
  switch (operand.role) {
    case OperandRole::kInput:
      return feature_maps[layer(id).inputs[operand.index]];
    case OperandRole::kOutput:
      return feature_maps[layer(id).output];
    case OperandRole::kParameter: {
      const ValueId copy = parts.parameters[mine.first_parameter + operand.index].copy;
      return copy != kNone ? copy : mine.parameters[operand.index];
    }
    case OperandRole::kSaved:
      return mine.saved[operand.index];
    case OperandRole::kGradientStatistic:
      return mine.gradient_statistics[operand.index];
    case OperandRole::kOutputGradient:
      return gradients[layer(id).output].value;
    case OperandRole::kParameterGradient:
      return mine.parameter_gradients[operand.index];
    case OperandRole::kInputGradient:
    case OperandRole::kParameterCopy:
    case OperandRole::kState:
    case OperandRole::kGradientNorm:
    case OperandRole::kGradientSum:
    case OperandRole::kLossScale:
      break;
  }
  return kNone;
}

Op LoweringState::op_with_reads(std::uint32_t id, Phase phase, const std::vector<OpRecipe>& recipes,
                                std::size_t position) const {
  const OpRecipe& recipe = recipes[position];
  Op op{.name = layer(id).name + "." + op_suffix(recipes, position),
        .layer = id,
        .phase = phase,
        .direction = recipe.direction,
        .position = static_cast<std::uint32_t>(position),
        .spec = spec_of(id),
        .layer_inputs = input_types(id),
        .layer_outputs = {network.type(layer(id).output)},
        .reads = {},
        .writes = {},
        .may_overwrite = recipe.may_overwrite,
        .algorithms = with_costs(recipe.algorithms, recipe.cost),
        .cost = recipe.cost};
  for (const Operand& operand : recipe.reads) {
    op.reads.push_back(read(id, operand));
    if (op.reads.back() == kNone) {
      reject_recipe(layer(id).name, "reads an operand that no op makes, in op " + op.name);
    }
  }
  return op;
}

void LoweringState::add_catalog_op(Op op) {
  const LayerRecipe recipe = catalog.recipe(op.spec, op.layer_inputs, op.layer_outputs, Mode::kInference);
  if (recipe.forward.size() != 1) {
    reject_recipe(op.name, "consists of " + std::to_string(recipe.forward.size()) + " ops");
  }
  op.may_overwrite = recipe.forward[0].may_overwrite;
  op.algorithms = recipe.forward[0].algorithms;
  op.cost = recipe.forward[0].cost;
  parts.ops.push_back(std::move(op));
}

}  // namespace vdnn::lowering
