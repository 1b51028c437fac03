#pragma once
// Recipes of losses, whose operands are the same on every device; see standard_recipes.h.
//
// Targets of classes lie as written (N, then space, row-major), whatever the layout of the logits.

#include <cstdint>
#include <span>
#include <string_view>

#include "src/ops/standard_recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::ops {

// Predictions over classes as a table: a row of `classes` logits for each place, places of a sample together.
struct ClassPlaces {
  std::uint64_t samples = 0;
  std::uint64_t classes = 0;
  std::uint64_t places = 0;  // of one sample

  // `inputs` of a loss over classes: logits N x K x space..., targets N x space.... Throws InvalidArgument
  // with `loss`, its name.
  ClassPlaces(std::span<const TensorType> inputs, std::string_view loss);
};

// Throws InvalidArgument with the first sample whose target is not a class, the target and the classes.
// Negative targets are places that do not count.
void require_classes(const ClassPlaces& problem, std::span<const std::int32_t> targets);

// Saves the probabilities, which may take the memory of the logits, and whose memory the gradient may take.
LayerRecipe standard_recipe(const SoftmaxCrossEntropySpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Backward reads prediction and targets once more; the gradient may take the memory of the prediction.
LayerRecipe standard_recipe(const MeanSquaredErrorSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// As softmax cross-entropy, and saves (N x 2K) of each sample the numerators of its classes' Dice
// coefficients, then the denominators, so that backward need not sum over space again.
LayerRecipe standard_recipe(const DiceCrossEntropySpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);

}  // namespace vdnn::ops
