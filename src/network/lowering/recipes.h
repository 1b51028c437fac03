#pragma once
// The rules that recipes must obey, and the names of their ops.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn::lowering {

// Throws InvalidArgument with the layer's name.
[[noreturn]] void reject_recipe(const std::string& layer, const std::string& why);

// The part of an op's name after its layer's: "backward_data", numbered if the recipe has several ops of that
// direction.
std::string op_suffix(const std::vector<OpRecipe>& recipes, std::size_t position);

// Rejects a recipe that names an operand which its layer does not have, or that makes the gradient of an
// untrained parameter. `inputs`: the number of the layer's inputs.
void check_operands(const std::string& layer, const LayerRecipe& recipe, std::size_t inputs);

bool mentions(const std::vector<Operand>& operands, OperandRole role, std::size_t index);

}  // namespace vdnn::lowering
