#include "src/network/lowering/recipes.h"

#include <algorithm>
#include <array>

#include "vdnn/error.h"

namespace vdnn::lowering {

void reject_recipe(const std::string& layer, const std::string& why) {
  throw InvalidArgument("layer " + layer + ": the catalog's recipe " + why);
}

std::string op_suffix(const std::vector<OpRecipe>& recipes, std::size_t position) {
  static constexpr std::array<const char*, 4> kNames{"forward", "backward_data", "backward_filter", "update"};
  const Direction direction = recipes[position].direction;
  const auto same = [direction](const OpRecipe& recipe) { return recipe.direction == direction; };
  std::string name = kNames.at(static_cast<std::size_t>(direction));
  if (std::ranges::count_if(recipes, same) == 1) {
    return name;
  }
  const auto begin = recipes.begin();
  return name + std::to_string(std::count_if(begin, begin + static_cast<std::ptrdiff_t>(position), same));
}

void check_operands(const std::string& layer, const LayerRecipe& recipe, std::size_t inputs) {
  const auto count_of = [&](OperandRole role) -> std::size_t {
    switch (role) {
      case OperandRole::kInput:
      case OperandRole::kInputGradient:
        return inputs;
      case OperandRole::kOutput:
      case OperandRole::kOutputGradient:
        return 1;
      case OperandRole::kParameter:
      case OperandRole::kParameterGradient:
        return recipe.parameters.size();
      case OperandRole::kSaved:
        return recipe.saved.size();
      case OperandRole::kGradientStatistic:
        return recipe.gradient_statistics.size();
      case OperandRole::kParameterCopy:
      case OperandRole::kState:
      case OperandRole::kGradientNorm:
      case OperandRole::kGradientSum:
      case OperandRole::kLossScale:
        break;
    }
    return 0;
  };
  for (const std::vector<OpRecipe>* ops : {&recipe.forward, &recipe.backward}) {
    for (std::size_t position = 0; position < ops->size(); ++position) {
      for (const std::vector<Operand>* operands : {&(*ops)[position].reads, &(*ops)[position].writes}) {
        for (const Operand& operand : *operands) {
          if (operand.index >= count_of(operand.role)) {
            reject_recipe(layer, "names an operand that does not exist in op " + op_suffix(*ops, position));
          }
        }
      }
      // No update would read the gradient of an untrained parameter.
      for (const Operand& write : (*ops)[position].writes) {
        if (write.role == OperandRole::kParameterGradient && !recipe.parameters[write.index].trainable) {
          reject_recipe(layer, "makes the gradient of parameter '" + recipe.parameters[write.index].name +
                                   "', which is not trainable, in op " + op_suffix(*ops, position));
        }
      }
    }
  }
}

bool mentions(const std::vector<Operand>& operands, OperandRole role, std::size_t index) {
  return std::ranges::any_of(operands, [role, index](const Operand& operand) {
    return operand.role == role && operand.index == index;
  });
}

}  // namespace vdnn::lowering
