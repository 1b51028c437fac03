#pragma once
// The definitions of layers, losses and optimizers, apart from shapes: the numbers that the author of a
// network writes, and the formula that uses them.
//
// Window geometry has one entry per spatial dimension. Output size: (in + 2 padding - extent) / stride + 1,
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
// - 2 padding + kernel. Parameters: filter K x C x space (K: channels of the output), bias K.
struct TransposedConvolutionSpec {
  std::int64_t filters = 0;
  Dims kernel;
  Dims stride;
  Dims padding;
  bool bias = true;
};

// The input is flattened in the order of its own layout. Parameters: filter K x C x space, bias K.
struct FullyConnectedSpec {
  std::int64_t outputs = 0;
  bool bias = true;
};

struct ReluSpec {  // y = negative_slope x for x < 0; leaky if negative_slope > 0
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
  Dims factors;  // one per spatial dimension, whole numbers
};

struct AddSpec {};            // inputs 0 and 1, same type
struct ConcatenationSpec {};  // along channels: two or more inputs, alike in all other dimensions

// Normalises each channel over the batch and space (Ioffe and Szegedy 2015): y = scale (x - mean) /
// sqrt(variance + epsilon) + shift. Parameters: scale and shift; running mean and running variance, which are
// not trainable. Training updates the latter two by running += momentum (batch - running), with the variance
// over n - 1; inference uses them. If devices train together, the batch is that of each device, or the
// batches of all devices (TrainingOptions::sync_batch_normalization).
struct BatchNormalizationSpec {
  float epsilon = 1e-5F;
  float momentum = 0.1F;
  std::uint32_t ranks = 1;  // number of ranks over whose batches statistics are taken; set by lowering
};

// Normalises each group of channels of each sample over the group's channels and space (Wu and He 2018). With
// as many groups as channels it is instance normalisation (Ulyanov et al. 2016). Parameters: scale and shift
// of each channel.
struct GroupNormalizationSpec {
  std::int64_t groups = 1;
  float epsilon = 1e-5F;
};

// Local response normalisation across channels (Krizhevsky et al. 2012): y = x / (k + alpha / size * sum of
// x^2 over `size` channels around x's channel) ^ beta.
struct LrnSpec {
  std::int64_t size = 5;  // odd
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1;
};

// Inverted dropout: in training y = x / (1 - probability), or 0 with that probability; in inference y = x.
// The choice of dropped elements is a function of (seed, step, sample, key, element) and is never stored: see
// StepScalars.
struct DropoutSpec {
  float probability = 0.5F;
  std::uint64_t key = 0;  // tells layers apart; 0: the network derives one from the layer's position
};

// Converts numbers to another floating-point type, rounding to nearest. The gradient is converted back.
struct ConversionSpec {
  DataType to = DataType::kF32;
};

// Losses. Inputs: 0 prediction, 1 targets. Output 0: metrics, three floats: the mean loss, the number of
// right predictions, and the number of places that count (those whose target is not negative). Gradients are
// those of `weight` times the mean loss. Class targets are row-major for any layout of the prediction.

// Logits N x K x space..., targets N x space... (i32, one class each).
struct SoftmaxCrossEntropySpec {
  float weight = 1;
};
// Prediction and targets are fp32 and have the same shape. The mean is over all elements, and all of them
// count. The number of right predictions is 0.
struct MeanSquaredErrorSpec {
  float weight = 1;
};
// Softmax cross-entropy plus one minus the mean soft Dice coefficient. The coefficient of a sample and a
// class is (2 sum p t + smooth) / (sum p + sum t + smooth), with sums over the places that count (Milletari
// et al. 2016). The sum of both losses is that of Isensee et al. 2021. A sample without a place that counts
// is left out of the mean. If all are left out, loss and gradients are 0.
struct DiceCrossEntropySpec {
  float weight = 1;
  float smooth = 1;
};

// A layer from outside the library (custom_layer.h). If null, the op is a stretch of a foreign program's
// step, which only that program can run (learned_step.h).
class CustomLayer;
struct CustomSpec {
  std::shared_ptr<const CustomLayer> layer;
};

// Optimizers. If gradients are clipped, each update multiplies its gradient by the scale of GradientNormSpec.

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
// Output: two floats, norm and scale. If the norm is not finite, the scale is NaN, so that divergence shows.
//
// With `loss_scaled` the gradients are those of a loss that was multiplied by the loss scale, which is the
// op's last read. Norm and scale are then those of the gradients divided by the loss scale. A norm that is
// not finite is an overflow, and updates are skipped. Output: a LossScaledNorm.
struct GradientNormSpec {
  float max_norm = 1;  // > 0; infinite with `loss_scaled`: gradients are not clipped
  bool loss_scaled = false;
};

// Loss scaling as PyTorch's GradScaler defines it (Micikevicius et al., ICLR 2018): the loss, and so every
// gradient, is multiplied by a scale that keeps small gradients representable. If gradients overflow, the
// update is skipped and the scale multiplied by `backoff`. After `growth_interval` updates in a row without
// an overflow the scale is multiplied by `growth`. The scale is on the device, as a LossScale.
struct LossScaling {
  float initial = 65536;
  float growth = 2;
  float backoff = 0.5F;
  std::uint32_t growth_interval = 2000;
  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};
// Gradients that overflow with a smaller scale than this are infinite even without scaling, so the training
// has diverged. No training may begin with a smaller scale.
inline constexpr float kLeastLossScale = 0x1p-24F;

// On the device, as floats: whole numbers below 2^24 are exact.
struct LossScale {
  float scale = 0;
  float good_steps = 0;     // consecutive updates without an overflow since the scale last changed
  float skipped_steps = 0;  // in total
};
struct LossScaledNorm {
  float norm = 0;           // of the unscaled gradients
  float scale = 0;          // by which updates multiply gradients
  float skips = 0;          // 1: updates are skipped
  float loss_scale = 0;     // of the gradients
  float skipped_steps = 0;  // before this one
};

// A gradient map times the loss scale. Inputs: 0 the map, 1 the LossScale.
struct GradientScalingSpec {};
// The scale of the next step. Inputs: 0 the LossScale, 1 the LossScaledNorm. Output: the LossScale.
struct LossScaleUpdateSpec {
  LossScaling scaling;
};

// Gradient accumulation: sum = gradient in the first micro-batch of a step (StepScalars::micro_step), and sum
// = sum + gradient in the others. So the sum of a step is a left fold over its micro-batches.
struct GradientSumSpec {};

// The sum of each operand over all ranks, in place. The executor's communicator runs it, not an op program.
struct AllReduceSpec {};

using OpSpec =
    std::variant<ConvolutionSpec, TransposedConvolutionSpec, FullyConnectedSpec, ReluSpec, SigmoidSpec,
                 PoolingSpec, UpsamplingSpec, AddSpec, ConcatenationSpec, BatchNormalizationSpec,
                 GroupNormalizationSpec, LrnSpec, DropoutSpec, ConversionSpec, SoftmaxCrossEntropySpec,
                 MeanSquaredErrorSpec, DiceCrossEntropySpec, CustomSpec, SgdSpec, AdamSpec, GradientNormSpec,
                 GradientSumSpec, GradientScalingSpec, LossScaleUpdateSpec, AllReduceSpec>;

// "convolution", "batch_normalization": names by which users select all layers of a kind.
const char* kind_of(const OpSpec& spec);

// Whether the layer is a loss: its output is metrics, its input 1 targets.
inline bool is_loss(const OpSpec& spec) {
  return std::holds_alternative<SoftmaxCrossEntropySpec>(spec) ||
         std::holds_alternative<MeanSquaredErrorSpec>(spec) ||
         std::holds_alternative<DiceCrossEntropySpec>(spec);
}

// The number of floats in a loss's output.
inline constexpr std::int64_t kMetricsFloats = 3;

}  // namespace vdnn
