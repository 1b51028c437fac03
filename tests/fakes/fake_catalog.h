#pragma once
// A catalog for tests that need tapes but no mathematics. Its recipes have the operands of the oneDNN catalog
// (max-pooling saves indices). On request, pooling reads X and Y in its backward pass as in cuDNN, so that
// feature maps have several backward readers. Convolutions have three algorithms each, so that planners have
// a choice; storage is dense.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/op_catalog.h"

namespace vdnn::fakes {

struct FakeCatalogOptions {
  bool pooling_reads_x_and_y = false;  // in the backward pass; pooling then saves nothing
};

class FakeCatalog : public OpCatalog {
 public:
  explicit FakeCatalog(const FakeCatalogOptions& options = {}) : options_(options) {}

  LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs, Mode mode) const override {
    LayerRecipe recipe =
        std::visit([&](const auto& one) { return training_recipe(one, inputs, outputs); }, spec);
    if (mode == Mode::kInference) {
      drop_training(recipe);
    }
    return recipe;
  }

  UpdateRecipe update_recipe(const OptimizerSpec& /*spec*/, const ParameterRecipe& parameter,
                             bool clipped) const override {
    const auto elements = static_cast<double>(parameter.type.elements());
    UpdateRecipe recipe{.state = {{"momentum", parameter.type}},
                        .op = {.direction = Direction::kUpdate,
                               .reads = {kParameter, kParameterGradient, kState},
                               .writes = {kParameter, kState},
                               .may_overwrite = {},
                               .algorithms = only(),
                               .cost = {.flops = 6 * elements, .bytes = 20 * elements}}};
    if (clipped) {
      recipe.op.reads.push_back({OperandRole::kGradientNorm, 0});
    }
    return recipe;
  }

  OpRecipe gradient_norm_recipe(const GradientNormSpec& /*spec*/,
                                std::span<const ParameterRecipe> parameters) const override {
    OpRecipe recipe{.direction = Direction::kUpdate, .writes = {{OperandRole::kGradientNorm, 0}}};
    recipe.algorithms = only();
    for (std::uint32_t index = 0; index < parameters.size(); ++index) {
      recipe.reads.push_back({OperandRole::kParameterGradient, index});
    }
    return recipe;
  }

  OpRecipe gradient_sum_recipe(const ParameterRecipe& parameter) const override {
    const auto elements = static_cast<double>(parameter.type.elements());
    return {.direction = Direction::kUpdate,
            .reads = {kParameterGradient, kGradientSum},
            .writes = {kGradientSum},
            .may_overwrite = {},
            .algorithms = only(),
            .cost = {.flops = elements, .bytes = 12 * elements}};
  }

  std::string algorithms_source() const override { return "fake"; }

 private:
  static constexpr Operand kX{OperandRole::kInput, 0};
  static constexpr Operand kX1{OperandRole::kInput, 1};
  static constexpr Operand kY{OperandRole::kOutput, 0};
  static constexpr Operand kParameter{OperandRole::kParameter, 0};
  static constexpr Operand kBias{OperandRole::kParameter, 1};
  static constexpr Operand kGradientSum{OperandRole::kGradientSum, 0};
  static constexpr Operand kSaved{OperandRole::kSaved, 0};
  static constexpr Operand kDY{OperandRole::kOutputGradient, 0};
  static constexpr Operand kDX{OperandRole::kInputGradient, 0};
  static constexpr Operand kDX1{OperandRole::kInputGradient, 1};
  static constexpr Operand kParameterGradient{OperandRole::kParameterGradient, 0};
  static constexpr Operand kBiasGradient{OperandRole::kParameterGradient, 1};
  static constexpr Operand kState{OperandRole::kState, 0};

  static std::vector<Algorithm> only() { return {{"only", 0}}; }

  // Faster algorithms need more workspace, and the library prefers the fastest.
  static std::vector<Algorithm> choice(std::uint64_t operand_bytes) {
    return {{"fast", operand_bytes}, {"tiled", operand_bytes / 4}, {"lean", 0}};
  }

  // The cost of accessing each element of the operands about once.
  static Cost elementwise(const TensorType& type, double operands) {
    const auto elements = static_cast<double>(type.elements());
    return {.flops = elements, .bytes = operands * static_cast<double>(type.bytes())};
  }

  static void drop_training(LayerRecipe& recipe) {
    recipe.saved.clear();
    recipe.backward.clear();
    for (OpRecipe& op : recipe.forward) {
      std::erase(op.writes, kSaved);
      std::erase_if(op.may_overwrite,
                    [&](const Overwrite& overwrite) { return overwrite.write >= op.writes.size(); });
    }
  }

  // Y = W X + b: convolutions and fully connected layers. `weights` is K x C x window; `dot`, the length of
  // each dot product, is C x window.
  static LayerRecipe linear(const TensorType& weights, const TensorType& x, const TensorType& y,
                            const std::vector<Algorithm>& algorithms) {
    const std::int64_t filters = weights.dims[0];
    const auto dot = static_cast<std::int64_t>(weights.elements()) / filters;
    const TensorType bias{.dims = {filters}};
    const Cost cost{.flops = 2.0 * static_cast<double>(dot) * static_cast<double>(y.elements()),
                    .bytes = static_cast<double>(x.bytes() + y.bytes() + weights.bytes())};
    LayerRecipe recipe;
    recipe.parameters = {{"filter", weights, weights.bytes(), Initializer::kHeNormal, dot},
                         {"bias", bias, bias.bytes(), Initializer::kZero, 0}};
    recipe.forward = {{Direction::kForward, {kX, kParameter, kBias}, {kY}, {}, algorithms, cost}};
    recipe.backward = {
        {Direction::kBackwardFilter, {kX, kDY}, {kParameterGradient, kBiasGradient}, {}, algorithms, cost},
        {Direction::kBackwardData, {kDY, kParameter}, {kDX}, {}, algorithms, cost}};
    return recipe;
  }

  static LayerRecipe training_recipe(const ConvolutionSpec& spec, std::span<const TensorType> inputs,
                                     std::span<const TensorType> outputs) {
    TensorType filter{.dims = {spec.filters, inputs[0].dims[1]}};
    filter.dims.insert(filter.dims.end(), spec.kernel.begin(), spec.kernel.end());
    return linear(filter, inputs[0], outputs[0], choice(inputs[0].bytes() + outputs[0].bytes()));
  }

  static LayerRecipe training_recipe(const FullyConnectedSpec& spec, std::span<const TensorType> inputs,
                                     std::span<const TensorType> outputs) {
    TensorType weights{.dims = inputs[0].dims};
    weights.dims[0] = spec.outputs;
    return linear(weights, inputs[0], outputs[0], only());
  }

  static LayerRecipe training_recipe(const ReluSpec& /*spec*/, std::span<const TensorType> inputs,
                                     std::span<const TensorType> /*outputs*/) {
    LayerRecipe recipe;
    recipe.forward = {{Direction::kForward, {kX}, {kY}, {{0, 0}}, only(), elementwise(inputs[0], 2)}};
    recipe.backward = {
        {Direction::kBackwardData, {kY, kDY}, {kDX}, {{0, 1}}, only(), elementwise(inputs[0], 3)}};
    return recipe;
  }

  LayerRecipe training_recipe(const PoolingSpec& spec, std::span<const TensorType> inputs,
                              std::span<const TensorType> outputs) const {
    const Cost cost = elementwise(inputs[0], 2);
    LayerRecipe recipe;
    recipe.forward = {{Direction::kForward, {kX}, {kY}, {}, only(), cost}};
    recipe.backward = {{Direction::kBackwardData, {kDY}, {kDX}, {}, only(), cost}};
    if (options_.pooling_reads_x_and_y) {
      recipe.backward[0].reads = {kX, kY, kDY};
    } else if (spec.mode == PoolingMode::kMax) {
      recipe.saved = {{"indices", {DataType::kU8, outputs[0].dims, outputs[0].layout}}};
      recipe.forward[0].writes.push_back(kSaved);
      recipe.backward[0].reads.push_back(kSaved);
    }
    return recipe;
  }

  static LayerRecipe training_recipe(const AddSpec& /*spec*/, std::span<const TensorType> inputs,
                                     std::span<const TensorType> /*outputs*/) {
    const Cost copy = elementwise(inputs[0], 2);
    LayerRecipe recipe;
    recipe.forward = {
        {Direction::kForward, {kX, kX1}, {kY}, {{0, 0}, {0, 1}}, only(), elementwise(inputs[0], 3)}};
    recipe.backward = {{Direction::kBackwardData, {kDY}, {kDX}, {}, only(), copy},
                       {Direction::kBackwardData, {kDY}, {kDX1}, {{0, 0}}, only(), copy}};
    return recipe;
  }

  static LayerRecipe training_recipe(const SoftmaxCrossEntropySpec& /*spec*/,
                                     std::span<const TensorType> inputs,
                                     std::span<const TensorType> /*outputs*/) {
    const Cost cost = elementwise(inputs[0], 2);
    LayerRecipe recipe;
    recipe.saved = {{"probabilities", inputs[0]}};
    recipe.forward = {{Direction::kForward, {kX, kX1}, {kY, kSaved}, {{1, 0}}, only(), cost}};
    recipe.backward = {{Direction::kBackwardData, {kSaved, kX1}, {kDX}, {{0, 0}}, only(), cost}};
    return recipe;
  }

  template <class Other>
  static LayerRecipe training_recipe(const Other& /*spec*/, std::span<const TensorType> /*inputs*/,
                                     std::span<const TensorType> /*outputs*/) {
    throw InvalidArgument("the fake catalog does not know this layer");
  }

  FakeCatalogOptions options_;
};

}  // namespace vdnn::fakes
