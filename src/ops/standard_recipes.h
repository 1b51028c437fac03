#pragma once
// Recipes of layers whose operands do not depend on the device. They contain the operands of the layer's ops,
// permissions to overwrite, and costs. A catalog adds the algorithms. A device that needs other operands has
// its own recipes. All functions throw InvalidArgument for shapes and numbers that the layer cannot have.

#include <string>
#include <vector>

#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::ops {

// A catalog's algorithms for each op of a pass. `backward` is not used in inference.
struct LayerAlgorithms {
  std::vector<Algorithm> forward;
  std::vector<Algorithm> backward;
};

// Backward reads Y and dY. Y may overwrite X, and dX may overwrite dY.
LayerRecipe standard_recipe(const ReluSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
LayerRecipe standard_recipe(const SigmoidSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Backward has one op per input: a copy of dY, which does nothing if dX overwrites dY.
LayerRecipe standard_recipe(const AddSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Converts between floating-point types. No operand may be overwritten, since elements differ in size.
LayerRecipe standard_recipe(const ConversionSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// The layer has one op, which works in place on a feature map in fp32.
LayerRecipe standard_recipe(const GradientScalingSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// The layer has one op, which works in place.
LayerRecipe standard_recipe(const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Backward has one op per input, which copies the input's channels out of dY.
LayerRecipe standard_recipe(const ConcatenationSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// The layer saves nothing: its backward pass reads dY.
LayerRecipe standard_recipe(const UpsamplingSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// The layer saves nothing: both passes recompute the same mask. In inference the op is a copy, which does
// nothing if Y overwrites X.
LayerRecipe standard_recipe(const DropoutSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// The layer saves mean and reciprocal standard deviation of each sample's groups (N x groups).
LayerRecipe standard_recipe(const GroupNormalizationSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);

// Forward has two ops. "Normalise" reads X, scale and shift, and makes Y and the batch's mean and variance,
// which are saved. "Follow" reads the statistics and moves the running statistics towards them. It is a
// separate op, so that a recomputation of "normalise" does not move the running statistics twice.
//
// If BatchNormalizationSpec::ranks is more than 1, the statistics are those of all ranks' batches. Statistics
// and normalisation are then separate ops, between which the statistics are summed over ranks:
//   statistics  X -> own mean and own variance, which are those of this rank's batch, and this rank's share
//               of the mean, own mean / ranks
//   variance    own mean, own variance, mean -> this rank's share of the variance,
//               (own variance + (own mean - mean)^2) / ranks
//   normalise   X, scale, shift, mean, variance -> Y, as inference does
//   follow      as above
// The ops of the backward pass are
//   sums        X, mean, variance, dY -> gradients of scale and shift from this rank's batch, as for all
//               parameters, and this rank's share of the gradient means: these two gradients, divided by the
//               number of a channel's elements on all ranks
//   dX          X, mean, variance, dY, scale, gradient means -> dX
// All ranks have batches of the same size, so shares need no weights. Only differences from a mean are
// squared, so that no large numbers are subtracted (as in Chan, Golub and LeVeque 1983, for parts of equal
// size). A single sum of squares would need one reduction instead of two, but in fp32 it loses the variance
// if the mean is large.
struct BatchNormalizationAlgorithms {
  std::vector<Algorithm> forward;  // "normalise", or the one op of inference
  std::vector<Algorithm> follow;
  std::vector<Algorithm> backward;
  // Used only for batches over several ranks.
  std::vector<Algorithm> statistics = {};
  std::vector<Algorithm> variance = {};
  std::vector<Algorithm> sums = {};
};
// Positions of the ops for a batch of several ranks.
namespace synchronized {
inline constexpr std::uint32_t kStatistics = 0;
inline constexpr std::uint32_t kVariance = 1;
inline constexpr std::uint32_t kNormalise = 2;
inline constexpr std::uint32_t kFollow = 3;
inline constexpr std::uint32_t kSums = 0;
inline constexpr std::uint32_t kGradient = 1;
}  // namespace synchronized
LayerRecipe standard_recipe(const BatchNormalizationSpec& spec, const LayerTypes& types, Mode mode,
                            const BatchNormalizationAlgorithms& algorithms);

// Returns the layer's own recipe after checking the rules on which every catalog relies. Parameters without
// storage get dense storage. `device` and `threads`: see CustomQuestion.
LayerRecipe custom_recipe(const CustomSpec& spec, const LayerTypes& types, Mode mode,
                          const std::string& device, int threads);

}  // namespace vdnn::ops
