#include "src/network/lowering/forward.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "src/network/lowering/updates.h"
#include "vdnn/error.h"

namespace vdnn::lowering {

void ForwardLowering::declare_inputs() {
  const auto declare_input = [this](std::uint32_t id, ValueKind kind) {
    const TensorType& type = state_.network.type(id);
    state_.feature_maps[id] = state_.declare(state_.network.feature_map_name(id), kind, type, type.bytes());
    state_.parts.inputs.push_back(state_.feature_maps[id]);
  };
  declare_input(state_.network.input(), ValueKind::kInput);
  for (const std::uint32_t target : state_.network.targets()) {
    declare_input(target, ValueKind::kTarget);
  }
}

void ForwardLowering::lower(std::uint32_t id) {
  describe(id);
  fetch_recipe(id);
  declare_parameters(id);
  const Layer& layer = state_.layer(id);
  const LayerRecipe& recipe = state_.layers[id].recipe;
  state_.gradients[layer.output].needed =
      std::ranges::any_of(layer.inputs, [&](std::uint32_t i) { return state_.gradients[i].needed; }) ||
      std::ranges::any_of(recipe.parameters, &ParameterRecipe::trainable);
  for (std::size_t position = 0; position < recipe.forward.size(); ++position) {
    state_.parts.ops.push_back(state_.layer_op(id, Phase::kForward, recipe.forward, position,
                                               [this, id](const Operand& write) { return make(id, write); }));
    reductions_.reduce_shares(id, recipe.forward[position]);
  }
  if (is_loss(layer.spec)) {
    state_.metrics.push_back(state_.feature_maps[layer.output]);
  }
}

void ForwardLowering::describe(std::uint32_t id) {
  const bool after_classifier = std::ranges::any_of(state_.layer(id).inputs, [&](std::uint32_t input) {
    for (std::uint32_t earlier = 0; earlier < id; ++earlier) {
      if (state_.layer(earlier).output == input) {
        return state_.parts.layers[earlier].classifier;
      }
    }
    return false;
  });
  const OpSpec& spec = state_.layer(id).spec;
  state_.parts.layers.push_back(
      {.name = state_.layer(id).name,
       .convolution = std::holds_alternative<ConvolutionSpec>(spec) ||
                      std::holds_alternative<TransposedConvolutionSpec>(spec),
       .classifier = after_classifier || std::holds_alternative<FullyConnectedSpec>(spec)});
}

void ForwardLowering::fetch_recipe(std::uint32_t id) {
  const std::array<TensorType, 1> outputs{state_.network.type(state_.layer(id).output)};
  LayerState& mine = state_.layers[id];
  try {
    mine.recipe = state_.catalog.recipe(state_.spec_of(id), state_.input_types(id), outputs,
                                        state_.training == nullptr ? Mode::kInference : Mode::kTraining);
  } catch (const InvalidArgument& error) {  // the catalog's message lacks the layer's name
    throw InvalidArgument("layer " + state_.layer(id).name + ": " + error.what());
  }
  check_operands(state_.layer(id).name, mine.recipe, state_.layer(id).inputs.size());
  mine.saved.assign(mine.recipe.saved.size(), kNone);
  mine.gradient_statistics.assign(mine.recipe.gradient_statistics.size(), kNone);
  mine.parameter_gradients.assign(mine.recipe.parameters.size(), kNone);
}

void ForwardLowering::declare_parameters(std::uint32_t id) {
  LayerState& mine = state_.layers[id];
  mine.first_parameter = state_.parts.parameters.size();
  for (ParameterRecipe& recipe : mine.recipe.parameters) {
    if (recipe.initializer == Initializer::kHeNormal && makes_logits(id)) {
      recipe.initializer = Initializer::kLogitsNormal;
    }
    const std::string name = state_.layer(id).name + "." + recipe.name;
    TapeParameter parameter{
        .value = state_.declare(name, ValueKind::kParameter, recipe.type, recipe.storage_bytes),
        .state = {},
        .recipe = recipe};
    if (recipe.copy && !(is_narrow(*recipe.copy) && recipe.trainable)) {
      reject_recipe(state_.layer(id).name, "has a copy of parameter '" + recipe.name +
                                               "' that is neither fp16 nor bf16, or that no update writes");
    }
    if (recipe.copy) {
      TensorType type = recipe.type;
      type.data_type = *recipe.copy;
      parameter.copy = state_.declare(name + "." + to_string(*recipe.copy), ValueKind::kParameterCopy, type,
                                      recipe.copy_bytes());
    }
    mine.parameters.push_back(parameter.value);
    mine.updates.emplace_back();
    if (state_.training != nullptr && recipe.trainable && state_.reaches_loss[id]) {
      mine.updates.back() = state_.catalog.update_recipe(state_.training->optimizer, recipe,
                                                         needs_gradient_norm(*state_.training));
      for (const ValueRecipe& kept : mine.updates.back().state) {
        parameter.state.push_back(
            state_.declare(name + "." + kept.name, ValueKind::kOptimizerState, kept.type, kept.type.bytes()));
      }
    }
    state_.parts.parameters.push_back(std::move(parameter));
  }
}

// Whether a classification loss reads the layer's output, directly or through a conversion.
bool ForwardLowering::makes_logits(std::uint32_t id) const {
  for (std::uint32_t reader = id + 1; reader < state_.layers.size(); ++reader) {
    const OpSpec& spec = state_.layer(reader).spec;
    if (state_.layer(reader).inputs.front() != state_.layer(id).output) {
      continue;
    }
    if ((is_loss(spec) && !std::holds_alternative<MeanSquaredErrorSpec>(spec)) ||
        (std::holds_alternative<ConversionSpec>(spec) && makes_logits(reader))) {
      return true;
    }
  }
  return false;
}

ValueId ForwardLowering::make(std::uint32_t id, const Operand& operand) {
  switch (operand.role) {
    case OperandRole::kParameter:  // running statistics
      return state_.layers[id].recipe.parameters[operand.index].trainable
                 ? kNone
                 : state_.layers[id].parameters[operand.index];
    case OperandRole::kOutput:
      return make_output(id);
    case OperandRole::kSaved:
      return state_.declare_passed_on(id, operand);
    default:
      return kNone;
  }
}

ValueId ForwardLowering::make_output(std::uint32_t id) {
  const std::uint32_t output = state_.layer(id).output;
  const bool metrics = is_loss(state_.layer(id).spec);
  const TensorType& type = state_.network.type(output);
  state_.feature_maps[output] =
      state_.declare(state_.network.feature_map_name(output),
                     metrics ? ValueKind::kMetrics : ValueKind::kFeatureMap, type, type.bytes());
  return state_.feature_maps[output];
}

}  // namespace vdnn::lowering
