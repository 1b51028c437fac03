#include "src/ops/standard_updates.h"

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

void require(bool condition, const std::string& why) {
  if (!condition) {
    throw InvalidArgument(why);
  }
}

bool finite_and_not_negative(float value) {
  return std::isfinite(value) && value >= 0;
}

// An update of `parameter` with these states. Each state is read and written in place. `flops`: operations
// per element.
UpdateRecipe make_update(const ParameterRecipe& parameter, std::initializer_list<const char*> state,
                         double flops, bool clipped, std::vector<Algorithm> algorithms) {
  using enum OperandRole;
  require(parameter.type.data_type == DataType::kF32,
          "parameter " + parameter.name + ": optimizers update fp32 only");
  const std::uint64_t elements = parameter.stored_elements();
  // Parameter and states are read and written, the gradient is read.
  const auto accesses = static_cast<double>(2 * state.size() + 3);
  UpdateRecipe recipe{.state = {},
                      .op = {.direction = Direction::kUpdate,
                             .reads = {{kParameter, 0}, {kParameterGradient, 0}},
                             .writes = {{kParameter, 0}},
                             .may_overwrite = {{.write = 0, .read = 0}},
                             .algorithms = std::move(algorithms),
                             .cost = {.flops = flops * static_cast<double>(elements),
                                      .bytes = accesses * static_cast<double>(parameter.storage_bytes)}}};
  for (const char* const name : state) {
    const Operand operand{kState, static_cast<std::uint32_t>(recipe.state.size())};
    recipe.op.may_overwrite.push_back({.write = static_cast<std::uint32_t>(recipe.op.writes.size()),
                                       .read = static_cast<std::uint32_t>(recipe.op.reads.size())});
    recipe.op.reads.push_back(operand);
    recipe.op.writes.push_back(operand);
    recipe.state.push_back({.name = name, .type = {.dims = {static_cast<std::int64_t>(elements)}}});
  }
  if (clipped) {
    recipe.op.reads.push_back({kGradientNorm, 0});
    recipe.op.cost.flops += static_cast<double>(elements);
  }
  if (parameter.copy) {
    recipe.op.writes.push_back({kParameterCopy, 0});
    recipe.op.cost.bytes += static_cast<double>(parameter.copy_bytes());
  }
  return recipe;
}

}  // namespace

UpdateRecipe standard_update(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped,
                             std::vector<Algorithm> algorithms) {
  require(finite_and_not_negative(spec.momentum) && finite_and_not_negative(spec.weight_decay),
          "sgd: momentum " + std::to_string(spec.momentum) + " and weight decay " +
              std::to_string(spec.weight_decay) + " must be finite and not negative");
  return make_update(parameter, {"momentum"}, 6, clipped, std::move(algorithms));
}

UpdateRecipe standard_update(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped,
                             std::vector<Algorithm> algorithms) {
  for (const float beta : {spec.beta1, spec.beta2}) {
    require(beta >= 0 && beta < 1,
            "adam: beta " + std::to_string(beta) + " must be at least 0 and less than 1");
  }
  // With epsilon 0, padding would become 0 / 0, and so would every element that has had no gradient so far.
  require(std::isfinite(spec.epsilon) && spec.epsilon > 0,
          "adam: epsilon " + std::to_string(spec.epsilon) + " must be positive");
  require(finite_and_not_negative(spec.weight_decay),
          "adam: weight decay " + std::to_string(spec.weight_decay) + " must be finite and not negative");
  return make_update(parameter, {"first_moment", "second_moment"}, 14, clipped, std::move(algorithms));
}

OpRecipe standard_gradient_norm(const GradientNormSpec& spec, std::span<const ParameterRecipe> parameters,
                                std::vector<Algorithm> algorithms) {
  using enum OperandRole;
  require(
      (std::isfinite(spec.max_norm) || (spec.loss_scaled && std::isinf(spec.max_norm))) && spec.max_norm > 0,
      "gradient norm: the largest norm " + std::to_string(spec.max_norm) + " must be positive");
  require(!parameters.empty(), "gradient norm: no parameter has a gradient");
  OpRecipe recipe{.direction = Direction::kUpdate,
                  .reads = {},
                  .writes = {{kGradientNorm, 0}},
                  .may_overwrite = {},
                  .algorithms = std::move(algorithms),
                  .cost = {}};
  for (const ParameterRecipe& parameter : parameters) {
    require(parameter.type.data_type == DataType::kF32,
            "parameter " + parameter.name + ": gradients are fp32 only");
    recipe.reads.push_back({kParameterGradient, static_cast<std::uint32_t>(recipe.reads.size())});
    recipe.cost.bytes += static_cast<double>(parameter.storage_bytes);
  }
  recipe.cost.flops = recipe.cost.bytes / sizeof(float) * 2;
  if (spec.loss_scaled) {
    recipe.reads.push_back({kLossScale, 0});
  }
  return recipe;
}

OpRecipe standard_gradient_sum(const ParameterRecipe& parameter, std::vector<Algorithm> algorithms) {
  using enum OperandRole;
  const auto bytes = static_cast<double>(parameter.storage_bytes);
  return {.direction = Direction::kUpdate,
          .reads = {{kParameterGradient, 0}, {kGradientSum, 0}},
          .writes = {{kGradientSum, 0}},
          .may_overwrite = {{.write = 0, .read = 1}},
          .algorithms = std::move(algorithms),
          .cost = {.flops = bytes / sizeof(float), .bytes = 3 * bytes}};
}

}  // namespace vdnn::ops
