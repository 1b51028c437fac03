#pragma once
// What a layer, a loss or an optimizer is, apart from shapes: the numbers that its author writes, and the
// formula that they stand for.
//
// Window geometry has one entry a dimension of space. Output size: (in + 2 padding - extent) / stride + 1,
// where extent = dilation (kernel - 1) + 1; padding < extent.

#include <cstdint>
#include <memory>
#include <variant>

#include "vdnn/tensor.h"

namespace vdnn {

struct ConvolutionSpec {  // cross-correlation; parameters: filter K x C/groups x space, bias K
  std::int64_t filters = 0;
  Dims kernel;
  Dims stride;
  Dims padding;
  Dims dilation;            // empty: 1 everywhere
  std::int64_t groups = 1;  // divides channels and filters; equal to the channels: depth-wise
  bool bias = true;
};

// The gradient of a convolution with respect to its input, as a layer. Output size: (in - 1) stride
// - 2 padding + kernel. Parameters: filter K x C x space (K of the output), bias K.
struct TransposedConvolutionSpec {
  std::int64_t filters = 0;
  Dims kernel;
  Dims stride;
  Dims padding;
  bool bias = true;
};

// Input flattened in its own layout's order. Parameters: filter K x C x space, bias K.
struct FullyConnectedSpec {
  std::int64_t outputs = 0;
  bool bias = true;
};

struct ReluSpec {  // x < 0: negative_slope x; leaky where that is > 0
  float negative_slope = 0;
};

struct SigmoidSpec {};

enum class PoolingMode : std::uint8_t { kMax, kAverage };  // average: padding not counted
struct PoolingSpec {
  PoolingMode mode = PoolingMode::kMax;
  Dims kernel;
  Dims stride;
  Dims padding;
};

enum class UpsamplingMode : std::uint8_t {
  kNearest,
  kLinear  // linear along each dimension; half-pixel centres, clamped at the borders
};
struct UpsamplingSpec {
  UpsamplingMode mode = UpsamplingMode::kNearest;
  Dims factors;  // a dimension of space, whole numbers
};

struct AddSpec {};            // inputs 0 and 1, same type
struct ConcatenationSpec {};  // two or more inputs, alike but for their channels, one behind the other

// Over the batch and space, a channel (Ioffe and Szegedy 2015): y = scale (x - mean) / sqrt(variance +
// epsilon) + shift. Parameters: scale, shift; running mean and running variance, not trainable, follow by
// running += momentum (batch - running), with the variance over n - 1, and serve inference. Where devices
// train together, the batch is each device's own, or all of theirs
// (TrainingOptions::sync_batch_normalization).
struct BatchNormalizationSpec {
  float epsilon = 1e-5F;
  float momentum = 0.1F;
  std::uint32_t ranks = 1;  // whose batches are the batch: lowering says so, whatever a network has here
};

// Over a group of channels and space, a sample (Wu and He 2018); as many groups as channels: instance
// normalisation (Ulyanov et al. 2016). Parameters: scale, shift, a channel.
struct GroupNormalizationSpec {
  std::int64_t groups = 1;
  float epsilon = 1e-5F;
};

// Across channels (Krizhevsky et al. 2012): y = x / (k + alpha / size * sum of x^2 over `size` channels
// around it) ^ beta.
struct LrnSpec {
  std::int64_t size = 5;  // odd
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1;
};

// Inverted dropout: in training y = x / (1 - probability), or 0 with that probability; in inference y = x.
// What is dropped is a function of (seed, step, sample, key, element) and never stored: see StepScalars.
struct DropoutSpec {
  float probability = 0.5F;
  std::uint64_t key = 0;  // tells layers apart; 0: the network gives each its own, by position
};

// The same numbers in another floating-point type, rounded to the nearest. Its gradient is converted back.
struct ConversionSpec {
  DataType to = DataType::kF32;
};

// Losses. Inputs: 0 prediction, 1 targets. Output 0: metrics, three floats: the mean loss, how many
// predictions were right, how many places counted (those whose target is not negative). Gradients are those
// of `weight` times the mean loss. Class targets lie as written, whatever the layout of the prediction.

// Logits N x K x space..., targets N x space... (i32, a class each).
struct SoftmaxCrossEntropySpec {
  float weight = 1;
};
// Prediction and targets fp32 of one shape; the mean over all elements. Nothing is right or wrong: 0; all
// elements count.
struct MeanSquaredErrorSpec {
  float weight = 1;
};
// As softmax cross-entropy, plus 1 - the mean over samples and classes of the soft Dice coefficient
// (2 sum p t + smooth) / (sum p + sum t + smooth) over the places that count (Milletari et al. 2016; the sum
// of both as Isensee et al. 2021 use it). A sample without a place that counts is no part of the mean; where
// there is no other, loss and gradients are 0.
struct DiceCrossEntropySpec {
  float weight = 1;
  float smooth = 1;
};

// A layer from outside the library; see custom_layer.h. Without one: a stretch of a foreign program's step,
// which only that program can run; see learned_step.h.
class CustomLayer;
struct CustomSpec {
  std::shared_ptr<const CustomLayer> layer;
};

// Optimizers. Where gradients are clipped each update multiplies its gradient by the scale that the
// gradients' norm gives.

// Momentum SGD: m = momentum m + (g + weight_decay w); w = w - learning_rate m. One state: m.
struct SgdSpec {
  float momentum = 0;
  float weight_decay = 0;
};
// Adam (Kingma and Ba 2015), or with `decoupled` AdamW (Loshchilov and Hutter 2019):
//   g += weight_decay w (Adam); m += (1 - beta1)(g - m); v += (1 - beta2)(g^2 - v);
//   w -= learning_rate weight_decay w (AdamW); w -= learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 -
//   beta2^t)) + epsilon), t = step + 1. Two states: m, v.
struct AdamSpec {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0;
  bool decoupled = false;
};
using OptimizerSpec = std::variant<SgdSpec, AdamSpec>;

// The Euclidean norm of all parameter gradients together, and the scale min(1, max_norm / (norm + 1e-6)).
// Output: two floats, norm and scale. Where the norm is not finite the scale is NaN, so that a run that
// diverges is seen.
//
// With `loss_scaled` gradients are those of a loss that was multiplied by the loss scale, which is the op's
// last read: norm and scale are then of the gradients divided by it. A norm that is not finite is an
// overflow: updates are skipped. Output: a LossScaledNorm.
struct GradientNormSpec {
  float max_norm = 1;  // > 0; infinite with `loss_scaled`: gradients are not clipped
  bool loss_scaled = false;
};

// Loss scaling as PyTorch's GradScaler defines it (Micikevicius et al., ICLR 2018): the loss, and so every
// gradient, is multiplied by a scale that keeps small gradients representable. Where gradients overflow the
// update is skipped and the scale is multiplied by `backoff`; after `growth_interval` updates in a row
// without an overflow, by `growth`. The scale lives on the device, as a LossScale.
struct LossScaling {
  float initial = 65536;
  float growth = 2;
  float backoff = 0.5F;
  std::uint32_t growth_interval = 2000;
  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};
// Gradients that overflow with a smaller scale are infinite without any: a training that gets here has
// diverged. Training begins with no smaller one.
inline constexpr float kLeastLossScale = 0x1p-24F;

// Floats of the device: whole numbers below 2^24 are exact.
struct LossScale {
  float scale = 0;
  float good_steps = 0;     // updates in a row that were not skipped, since the scale last changed
  float skipped_steps = 0;  // in all
};
struct LossScaledNorm {
  float norm = 0;           // of the unscaled gradients
  float scale = 0;          // that updates multiply gradients by
  float skips = 0;          // 1: updates are skipped
  float loss_scale = 0;     // that the gradients have
  float skipped_steps = 0;  // before this one
};

// A gradient map times the loss scale. Inputs: 0 the map, 1 the LossScale.
struct GradientScalingSpec {};
// The scale of the next step. Inputs: 0 the LossScale, 1 the LossScaledNorm. Output: the LossScale.
struct LossScaleUpdateSpec {
  LossScaling scaling;
};

// Gradient accumulation: sum = gradient in the first micro-batch of a step (StepScalars::micro_step), sum +
// gradient in those that follow; so the sum of a step is a left fold over its micro-batches.
struct GradientSumSpec {};

// The sum of each operand over all ranks, in place. No program runs it: the executor's communicator does.
struct AllReduceSpec {};

using OpSpec =
    std::variant<ConvolutionSpec, TransposedConvolutionSpec, FullyConnectedSpec, ReluSpec, SigmoidSpec,
                 PoolingSpec, UpsamplingSpec, AddSpec, ConcatenationSpec, BatchNormalizationSpec,
                 GroupNormalizationSpec, LrnSpec, DropoutSpec, ConversionSpec, SoftmaxCrossEntropySpec,
                 MeanSquaredErrorSpec, DiceCrossEntropySpec, CustomSpec, SgdSpec, AdamSpec, GradientNormSpec,
                 GradientSumSpec, GradientScalingSpec, LossScaleUpdateSpec, AllReduceSpec>;

// "convolution", "batch_normalization": by which users may name all layers of a kind.
const char* kind_of(const OpSpec& spec);

// Does it end a network? Its output is metrics, its input 1 targets.
inline bool is_loss(const OpSpec& spec) {
  return std::holds_alternative<SoftmaxCrossEntropySpec>(spec) ||
         std::holds_alternative<MeanSquaredErrorSpec>(spec) ||
         std::holds_alternative<DiceCrossEntropySpec>(spec);
}

// Floats of a loss's output.
inline constexpr std::int64_t kMetricsFloats = 3;

}  // namespace vdnn
