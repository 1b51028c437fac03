#pragma once
// Checks the rules that recipes must obey, and names the ops of recipes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn::lowering {

// Throws InvalidArgument. The message contains the name of the layer and the reason.
[[noreturn]] void reject_recipe(const std::string& layer, const std::string& why);

// The part of an op's name that follows the layer's name, for example "backward_data". It is numbered if the
// recipe has several ops of that direction.
std::string op_suffix(const std::vector<OpRecipe>& recipes, std::size_t position);

// Rejects a recipe that names an operand which its layer does not have, or that makes the gradient of an
// untrained parameter. `inputs`: the number of the layer's inputs.
void check_operands(const std::string& layer, const LayerRecipe& recipe, std::size_t inputs);

// Whether an operand of this role and index is among `operands`.
bool mentions(const std::vector<Operand>& operands, OperandRole role, std::size_t index);

}  // namespace vdnn::lowering
