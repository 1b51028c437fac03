#pragma once
// Recipes of losses. Their operands are the same on every device; see standard_recipes.h.
//
// Class targets are stored as N x spatial dimensions, row-major, for either layout of the logits.

#include <cstdint>
#include <span>
#include <string_view>

#include "src/ops/standard_recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::ops {

// Predictions over classes as a table: one row of `classes` logits per place. The places of a
// sample are adjacent.
struct ClassPlaces {
  std::uint64_t samples = 0;
  std::uint64_t classes = 0;
  std::uint64_t places = 0;  // per sample

  // `inputs`: logits N x K x space and targets N x space, where "space" stands for the spatial dimensions.
  // Throws an InvalidArgument that names `loss` if the inputs do not fit.
  ClassPlaces(std::span<const TensorType> inputs, std::string_view loss);
};

// Throws an InvalidArgument that names the first sample whose target is not a class. Places with negative
// targets do not count.
void require_classes(const ClassPlaces& problem, std::span<const std::int32_t> targets);

// The forward pass saves the probabilities, which may overwrite the logits. The gradient may overwrite the
// probabilities.
LayerRecipe standard_recipe(const SoftmaxCrossEntropySpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Backward reads prediction and targets; the gradient may overwrite the prediction.
LayerRecipe standard_recipe(const MeanSquaredErrorSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Operands are those of softmax cross-entropy. The forward pass also saves the Dice coefficients (N x 2K):
// for each sample the numerators of its classes, then the denominators. So the backward pass need not sum
// over places again.
LayerRecipe standard_recipe(const DiceCrossEntropySpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);

}  // namespace vdnn::ops
