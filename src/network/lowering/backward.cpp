#include "src/network/lowering/backward.h"

#include <algorithm>
#include <utility>

namespace vdnn::lowering {

void BackwardLowering::run() {
  const auto count = static_cast<std::uint32_t>(state_.layers.size());
  for (std::uint32_t id = count; id-- > 0;) {
    if (state_.reaches_loss[id]) {
      choose_ops(id);
      expect_contributions(id);
    }
  }
  for (std::uint32_t id = count; id-- > 0;) {
    lower(id);
  }
}

bool BackwardLowering::is_needed(std::uint32_t id, const Operand& write) const {
  return (write.role == OperandRole::kParameterGradient &&
          state_.layers[id].recipe.parameters[write.index].trainable) ||
         (write.role == OperandRole::kInputGradient &&
          state_.gradients[state_.layer(id).inputs[write.index]].needed);
}

void BackwardLowering::choose_ops(std::uint32_t id) {
  LayerState& mine = state_.layers[id];
  for (std::size_t position = 0; position < mine.recipe.backward.size(); ++position) {
    const std::vector<Operand>& writes = mine.recipe.backward[position].writes;
    if (std::ranges::any_of(writes, [&](const Operand& write) { return is_needed(id, write); })) {
      mine.kept.push_back(position);
    }
  }
}

void BackwardLowering::expect_contributions(std::uint32_t id) {
  const LayerState& mine = state_.layers[id];
  // Without a maker, a gradient would lack a contribution, or a parameter would never learn. With several
  // makers, only one of their results would be used.
  const auto require_one_maker = [&](OperandRole role, std::uint32_t index, const std::string& what) {
    const auto makers = std::ranges::count_if(mine.kept, [&](std::size_t position) {
      return mentions(mine.recipe.backward[position].writes, role, index);
    });
    if (makers != 1) {
      reject_recipe(state_.layer(id).name,
                    "makes the gradient of " + what + " " + std::to_string(makers) + " times");
    }
  };
  for (std::uint32_t input = 0; input < state_.layer(id).inputs.size(); ++input) {
    GradientSum& gradient = state_.gradients[state_.layer(id).inputs[input]];
    if (gradient.needed) {
      require_one_maker(OperandRole::kInputGradient, input, "input " + std::to_string(input));
      ++gradient.expected;
    }
  }
  for (std::uint32_t index = 0; index < mine.parameters.size(); ++index) {
    if (!mine.recipe.parameters[index].trainable) {
      continue;
    }
    require_one_maker(OperandRole::kParameterGradient, index, mine.recipe.parameters[index].name);
  }
}

void BackwardLowering::lower(std::uint32_t id) {
  const LayerState& layer = state_.layers[id];
  for (const std::size_t position : layer.kept) {
    const OpRecipe& recipe = layer.recipe.backward[position];
    Op op = state_.layer_op(id, Phase::kBackward, layer.recipe.backward, position,
                            [this, id](const Operand& write) { return make(id, write); });
    const std::vector<ValueId> writes = op.writes;
    state_.parts.ops.push_back(std::move(op));
    reductions_.reduce_shares(id, recipe);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const Operand& write = recipe.writes[i];
      if (write.role == OperandRole::kInputGradient && is_needed(id, write)) {
        const bool loss = is_loss(state_.layer(id).spec);
        add_contribution(id, state_.layer(id).inputs[write.index],
                         loss ? loss_scaler_.scale_gradient(id, writes[i]) : writes[i]);
      }
    }
    for (const Operand& write : recipe.writes) {
      if (write.role == OperandRole::kParameterGradient && is_needed(id, write)) {
        finish_gradient(id, write.index);
      }
    }
    updates_.lower_after(id, position);
  }
}

ValueId BackwardLowering::make(std::uint32_t id, const Operand& operand) {
  switch (operand.role) {
    case OperandRole::kGradientStatistic:
      return state_.declare_passed_on(id, operand);
    case OperandRole::kInputGradient:
      return make_input_gradient(id, operand.index);
    case OperandRole::kParameterGradient:
      return make_parameter_gradient(id, operand.index);
    default:
      return kNone;
  }
}

// Declares a contribution to the gradient of a feature map. The name of the contribution includes the layer
// unless exactly one contribution is expected. A gradient that is not needed expects none.
ValueId BackwardLowering::make_input_gradient(std::uint32_t id, std::uint32_t index) {
  const std::uint32_t feature_map = state_.layer(id).inputs[index];
  std::string name = state_.network.feature_map_name(feature_map) + ".gradient";
  if (state_.gradients[feature_map].expected != 1) {
    name += "." + state_.layer(id).name;
    if (std::ranges::count(state_.layer(id).inputs, feature_map) > 1) {
      name += "." + std::to_string(index);
    }
  }
  const TensorType& type = state_.network.type(feature_map);
  return state_.declare(std::move(name), ValueKind::kGradientMap, type, type.bytes());
}

ValueId BackwardLowering::make_parameter_gradient(std::uint32_t id, std::uint32_t index) {
  LayerState& mine = state_.layers[id];
  const Value parameter = state_.parts.values[mine.parameters[index]];
  // With several ranks and one micro-step, ".gradient" is the name of the sum over ranks.
  const bool local = options().ranks > 1 && options().micro_steps == 1;
  mine.parameter_gradients[index] =
      state_.declare(parameter.name + (local ? ".gradient.local" : ".gradient"),
                     ValueKind::kParameterGradient, parameter.type, parameter.bytes);
  return mine.parameter_gradients[index];
}

// Adds `value`, the contribution of layer `id`, to the sum of the earlier contributions.
void BackwardLowering::add_contribution(std::uint32_t id, std::uint32_t feature_map, ValueId value) {
  GradientSum& gradient = state_.gradients[feature_map];
  ++gradient.arrived;
  if (gradient.arrived == 1) {
    gradient.value = value;
    return;
  }
  const std::string& name = state_.network.feature_map_name(feature_map);
  const TensorType& type = state_.network.type(feature_map);
  const std::string op_name = name + ".accumulate" + std::to_string(gradient.arrived - 1);
  const ValueId sum = state_.declare(gradient.arrived == gradient.expected ? name + ".gradient" : op_name,
                                     ValueKind::kGradientMap, type, type.bytes());
  state_.add_catalog_op({.name = op_name,
                         .layer = id,
                         .phase = Phase::kBackward,
                         .direction = Direction::kForward,
                         .spec = AddSpec{},
                         .layer_inputs = {type, type},
                         .layer_outputs = {type},
                         .reads = {gradient.value, value},
                         .writes = {sum}});
  // For any number of contributions, their sum stays in the memory of the first contribution.
  std::erase_if(state_.parts.ops.back().may_overwrite,
                [](const Overwrite& overwrite) { return overwrite.read != 0; });
  gradient.value = sum;
}

// Adds the gradient to the rank's sum over micro-steps, if there are several, and passes it to the
// reductions.
void BackwardLowering::finish_gradient(std::uint32_t id, std::uint32_t parameter) {
  if (options().micro_steps > 1) {
    updates_.accumulate(id, parameter);
  }
  reductions_.add_gradient(id, parameter);
}

}  // namespace vdnn::lowering
