#include "src/ops/classic/layers.h"

namespace vdnn::classic {

std::vector<Algorithm> direct() {
  return {{.name = "direct"}};
}

namespace {

// Whether the backward pass reads feature maps in addition to dY.
enum class Backward : std::uint8_t { kReadsMaps, kReadsNoMap };

// A layer that computes Y from X and saves no value.
LayerRecipe saving_nothing(const ops::LayerTypes& types, double flops, Backward backward, Mode mode) {
  using enum OperandRole;
  ops::require_count(types.inputs, 1, "inputs");
  const auto x_bytes = static_cast<double>(types.inputs[0].bytes());
  const auto y_bytes = static_cast<double>(types.outputs[0].bytes());
  LayerRecipe recipe;
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {{kInput, 0}},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = direct(),
                     .cost = {.flops = flops, .bytes = x_bytes + y_bytes}}};
  if (mode == Mode::kInference) {
    return recipe;
  }
  recipe.backward = {{.direction = Direction::kBackwardData,
                      .reads = {{kOutputGradient, 0}},
                      .writes = {{kInputGradient, 0}},
                      .may_overwrite = {},
                      .algorithms = direct(),
                      .cost = {.flops = flops, .bytes = x_bytes + y_bytes}}};
  if (backward == Backward::kReadsMaps) {
    recipe.backward[0].reads = {{kInput, 0}, {kOutput, 0}, {kOutputGradient, 0}};
    recipe.backward[0].cost.bytes *= 2;
  }
  return recipe;
}

}  // namespace

LayerRecipe make_recipe(const PoolingSpec& spec, const ops::LayerTypes& types, Mode mode) {
  const double flops = static_cast<double>(types.outputs[0].elements()) * ops::window_elements(spec.kernel);
  return saving_nothing(types, flops, Backward::kReadsMaps, mode);
}

LayerRecipe make_recipe(const LrnSpec& spec, const ops::LayerTypes& types, Mode mode) {
  // A multiply-add for each channel of the window, then a power and a quotient.
  const double flops =
      static_cast<double>(types.outputs[0].elements()) * (2 * static_cast<double>(spec.size) + 4);
  return saving_nothing(types, flops, Backward::kReadsMaps, mode);
}

LayerRecipe make_recipe(const UpsamplingSpec& spec, const ops::LayerTypes& types, Mode mode) {
  const auto elements = static_cast<double>(types.outputs[0].elements());
  // In d dimensions, an output has 2^d neighbours.
  const double neighbours =
      spec.mode == UpsamplingMode::kLinear ? static_cast<double>(1U << spec.factors.size()) : 0;
  return saving_nothing(types, 2 * neighbours * elements, Backward::kReadsNoMap, mode);
}

}  // namespace vdnn::classic
