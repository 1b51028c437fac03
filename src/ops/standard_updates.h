#pragma once
// Recipes of optimizers and of the gradient norm, with the same operands on every device. Updates work on
// parameters in their storage layout. Padding is zero in parameter, gradient and state, and an update must
// keep it zero.

#include <span>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn::ops {

// These functions throw InvalidArgument for an invalid spec. If `clipped`, the op's last read is the gradient
// norm with its scale, operand {OperandRole::kGradientNorm, 0}.

// The update has the state "momentum".
UpdateRecipe standard_update(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped,
                             std::vector<Algorithm> algorithms);
// The update has the states "first_moment" (m) and "second_moment" (v).
UpdateRecipe standard_update(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped,
                             std::vector<Algorithm> algorithms);

OpRecipe standard_gradient_norm(const GradientNormSpec& spec, std::span<const ParameterRecipe> parameters,
                                std::vector<Algorithm> algorithms);

OpRecipe standard_gradient_sum(const ParameterRecipe& parameter, std::vector<Algorithm> algorithms);

}  // namespace vdnn::ops
