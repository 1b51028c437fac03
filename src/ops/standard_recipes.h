#pragma once
// Recipes of layers whose operands do not depend on the device: what their ops read and write, what they may
// overwrite, and what they cost. A catalog brings the algorithms; where a device needs other operands, it has
// recipes of its own. All throw InvalidArgument for shapes and numbers that the layer cannot have.

#include <string>
#include <vector>

#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::ops {

// What a catalog has for each op of a pass; nothing is asked of `backward` in inference.
struct LayerAlgorithms {
  std::vector<Algorithm> forward;
  std::vector<Algorithm> backward;
};

// Backward reads Y and dY. Everything may be in place: Y over X, dX over dY.
LayerRecipe standard_recipe(const ReluSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
LayerRecipe standard_recipe(const SigmoidSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Backward is an op for each input, a copy of dY (nothing where dX lies over dY).
LayerRecipe standard_recipe(const AddSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Between types of floating-point numbers. Nothing may be overwritten: the elements have other sizes.
LayerRecipe standard_recipe(const ConversionSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// One op, in place, of a map of fp32.
LayerRecipe standard_recipe(const GradientScalingSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// One op, in place.
LayerRecipe standard_recipe(const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Backward is an op for each input, which copies its channels out of dY.
LayerRecipe standard_recipe(const ConcatenationSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Saves nothing: backward reads dY.
LayerRecipe standard_recipe(const UpsamplingSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Saves nothing: both passes make the same mask. In inference the algorithms are those of a copy, which is
// nothing where Y lies over X.
LayerRecipe standard_recipe(const DropoutSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);
// Saves mean and reciprocal deviation of each sample's groups (N x groups).
LayerRecipe standard_recipe(const GroupNormalizationSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms);

// Two ops in forward: "normalise" reads X, scale, shift and makes Y and the batch's mean and variance, which
// are saved; "follow" reads those and moves the running statistics. It is an op of its own so that a forward
// op that is computed again for backward does not move them twice.
//
// Where the batch is that of several ranks (BatchNormalizationSpec::ranks), statistics and normalisation come
// apart, since ranks meet between them:
//   statistics  X -> mean and variance of the own batch, and the own share of the mean, mean / ranks
//   variance    these and the mean -> the own share of the variance, (variance + (own mean - mean)^2) / ranks
//   normalise   X, scale, shift, mean, variance -> Y, as inference does
//   follow      as above
// and backward
//   sums        X, mean, variance, dY -> gradients of scale and shift, of the own batch as all gradients of
//               parameters, and the own share of their means over the elements of a channel on all ranks
//   dX          X, mean, variance, dY, scale, these means -> dX
// Ranks have batches of one size, so nobody has to say how many elements his share stands for; and squares
// are only taken of what is close to a mean, so that no large numbers are subtracted (as in Chan, Golub and
// LeVeque 1983, for parts of equal size). Their sum alone would take one meeting of ranks instead of two, in
// fp32 at the cost of the variance where the mean is large.
struct BatchNormalizationAlgorithms {
  std::vector<Algorithm> forward;  // "normalise", or the one op of inference
  std::vector<Algorithm> follow;
  std::vector<Algorithm> backward;
  // Of several ranks' batch.
  std::vector<Algorithm> statistics = {};
  std::vector<Algorithm> variance = {};
  std::vector<Algorithm> sums = {};
};
// Positions of the ops of several ranks' batch.
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

// What the layer says of itself, held to what every catalog relies on; dense storage is filled in. `device`
// and `threads`: see CustomQuestion.
LayerRecipe custom_recipe(const CustomSpec& spec, const LayerTypes& types, Mode mode,
                          const std::string& device, int threads);

}  // namespace vdnn::ops
