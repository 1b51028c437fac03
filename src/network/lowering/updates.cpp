#include "src/network/lowering/updates.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>

namespace vdnn::lowering {

bool needs_gradient_norm(const TrainingOptions& options) {
  return options.clip_norm || options.scales_losses();
}

// Adds the op of a recipe for one parameter. `resolve(operand)` returns the value of an operand.
template <class Resolve>
void Updates::add_parameter_op(Op op, const TensorType& parameter, const OpRecipe& recipe,
                               const Resolve& resolve) {
  op.direction = Direction::kUpdate;
  op.layer_inputs = {parameter};
  op.layer_outputs = {parameter};
  op.may_overwrite = recipe.may_overwrite;
  op.algorithms = recipe.algorithms;
  op.cost = recipe.cost;
  std::ranges::transform(recipe.reads, std::back_inserter(op.reads), resolve);
  std::ranges::transform(recipe.writes, std::back_inserter(op.writes), resolve);
  state_.parts.ops.push_back(std::move(op));
}

void Updates::accumulate(std::uint32_t id, std::uint32_t index) {
  ValueId& gradient = state_.layers[id].parameter_gradients[index];
  TapeParameter& parameter = state_.parts.parameters[state_.layers[id].first_parameter + index];
  const Value of_batch = state_.parts.values[gradient];
  parameter.gradient_sum =
      state_.declare(of_batch.name + "_sum", ValueKind::kGradientSum, of_batch.type, of_batch.bytes);
  const OpRecipe recipe = state_.catalog.gradient_sum_recipe(parameter.recipe);
  const auto resolve = [&](const Operand& operand) {
    return operand.role == OperandRole::kGradientSum ? parameter.gradient_sum : gradient;
  };
  add_parameter_op({.name = of_batch.name + ".accumulate",
                    .layer = id,
                    .phase = Phase::kBackward,
                    .spec = GradientSumSpec{}},
                   parameter.recipe.type, recipe, resolve);
  gradient = parameter.gradient_sum;
}

bool Updates::is_last_use(std::uint32_t id, std::size_t position, std::size_t parameter) const {
  const LayerState& mine = state_.layers[id];
  std::size_t last = mine.kept.size();
  for (std::size_t i = 0; i < mine.kept.size(); ++i) {
    const OpRecipe& recipe = mine.recipe.backward[mine.kept[i]];
    if (mentions(recipe.reads, OperandRole::kParameter, parameter) ||
        mentions(recipe.writes, OperandRole::kParameterGradient, parameter)) {
      last = i;
    }
  }
  return last < mine.kept.size() && mine.kept[last] == position;
}

void Updates::lower_after(std::uint32_t id, std::size_t position) {
  if (follow_backward()) {
    return;
  }
  for (std::size_t index = 0; index < state_.layers[id].parameters.size(); ++index) {
    if (is_last_use(id, position, index)) {
      lower_update(id, index);
    }
  }
}

void Updates::finish() {
  if (needs_gradient_norm(options())) {
    lower_gradient_norm();
  }
  if (!follow_backward()) {
    return;
  }
  for (std::uint32_t id = static_cast<std::uint32_t>(state_.layers.size()); id-- > 0;) {
    for (std::size_t index = 0; index < state_.layers[id].parameters.size(); ++index) {
      lower_update(id, index);
    }
  }
}

// Adds the norm of all gradients, or nothing if no parameter has a gradient.
void Updates::lower_gradient_norm() {
  const bool scaled = options().scales_losses();
  std::vector<ParameterRecipe> recipes;
  Op op{.name = "gradients.norm",
        .phase = Phase::kUpdate,
        .direction = Direction::kUpdate,
        .spec =
            GradientNormSpec{.max_norm = options().clip_norm.value_or(std::numeric_limits<float>::infinity()),
                             .loss_scaled = scaled}};
  for (std::uint32_t id = 0; id < state_.layers.size(); ++id) {
    const LayerState& mine = state_.layers[id];
    for (std::size_t index = 0; index < mine.parameters.size(); ++index) {
      if (const ValueId gradient = reductions_.wide_gradient(id, index); gradient != kNone) {
        recipes.push_back(mine.recipe.parameters[index]);
        op.reads.push_back(gradient);
        op.layer_inputs.push_back(recipes.back().type);
      }
    }
  }
  if (recipes.empty()) {
    return;
  }
  const TensorType type = floats(scaled ? sizeof(LossScaledNorm) : 2 * sizeof(float));
  gradient_norm_ = state_.declare("gradients.norm.value", ValueKind::kGradientNorm, type, type.bytes());
  const OpRecipe recipe = state_.catalog.gradient_norm_recipe(std::get<GradientNormSpec>(op.spec), recipes);
  if (scaled) {
    op.reads.push_back(state_.parts.loss_scale);
    op.layer_inputs.push_back(floats(sizeof(LossScale)));
  }
  op.layer_outputs = {type};
  op.writes = {gradient_norm_};
  op.algorithms = recipe.algorithms;
  op.cost = recipe.cost;
  state_.parts.ops.push_back(std::move(op));
}

void Updates::lower_update(std::uint32_t id, std::size_t index) {
  const LayerState& mine = state_.layers[id];
  const ValueId gradient = reductions_.wide_gradient(id, index);
  if (gradient == kNone) {
    return;  // not trainable, or no loss depends on it
  }
  const TapeParameter& parameter = state_.parts.parameters[mine.first_parameter + index];
  const OpRecipe& recipe = mine.updates[index].op;
  const auto resolve = [&](const Operand& operand) {
    switch (operand.role) {
      case OperandRole::kParameter:
        return parameter.value;
      case OperandRole::kParameterCopy:
        return parameter.copy;
      case OperandRole::kParameterGradient:
        return gradient;
      case OperandRole::kState:
        return operand.index < parameter.state.size() ? parameter.state[operand.index] : kNone;
      case OperandRole::kGradientNorm:
        return gradient_norm_;
      default:
        return kNone;
    }
  };
  add_parameter_op({.name = state_.parts.values[parameter.value].name + ".update",
                    .layer = id,
                    .phase = Phase::kUpdate,
                    .spec = std::visit([](const auto& spec) -> OpSpec { return spec; }, options().optimizer)},
                   parameter.recipe.type, recipe, resolve);
}

}  // namespace vdnn::lowering
