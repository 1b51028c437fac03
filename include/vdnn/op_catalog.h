#pragma once
// How a layer becomes ops on a given device. A catalog is asked for the *recipe* of a layer: which parameters
// it has and how the device holds them, what its forward pass saves, which ops its passes consist of, which
// operands each op reads and writes, what it may overwrite, and which algorithms exist with how much
// workspace. What backward needs is a driver's business: oneDNN's max-pooling saves indices, cuDNN's reads X
// and Y.
//
// A recipe names operands by role and index; `lower_to_tape` (network.h) puts values in their places, joins
// gradients where a feature map forks, and adds the updates. A catalog never sees a network.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "vdnn/cost.h"
#include "vdnn/tensor.h"

namespace vdnn {

// --- what a layer is, apart from shapes
// -----------------------------------------------------------------------
// Window geometry has one entry a dimension of space. Output size: (in + 2 padding - extent) / stride + 1,
// where extent = dilation (kernel - 1) + 1.

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

struct FullyConnectedSpec {  // input flattened in its own layout's order; parameters: weights K x C..., bias
                             // K
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
// running += momentum (batch - running), with the variance over n - 1, and serve inference.
struct BatchNormalizationSpec {
  float epsilon = 1e-5F;
  float momentum = 0.1F;
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
  std::uint64_t key = 0;  // tells layers apart
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

// A layer from outside the library; see custom_layer.h.
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
struct GradientNormSpec {
  float max_norm = 1;
};

using OpSpec =
    std::variant<ConvolutionSpec, TransposedConvolutionSpec, FullyConnectedSpec, ReluSpec, SigmoidSpec,
                 PoolingSpec, UpsamplingSpec, AddSpec, ConcatenationSpec, BatchNormalizationSpec,
                 GroupNormalizationSpec, LrnSpec, DropoutSpec, SoftmaxCrossEntropySpec, MeanSquaredErrorSpec,
                 DiceCrossEntropySpec, CustomSpec, SgdSpec, AdamSpec, GradientNormSpec>;

// Does it end a network? Its output is metrics, its input 1 targets.
inline bool is_loss(const OpSpec& spec) {
  return std::holds_alternative<SoftmaxCrossEntropySpec>(spec) ||
         std::holds_alternative<MeanSquaredErrorSpec>(spec) ||
         std::holds_alternative<DiceCrossEntropySpec>(spec);
}

// Floats of a loss's output.
inline constexpr std::int64_t kMetricsFloats = 3;

// --- recipes
// ----------------------------------------------------------------------------------------------------

enum class OperandRole : std::uint8_t {
  kInput,              // X
  kOutput,             // Y
  kParameter,          // W
  kSaved,              // made by forward for backward, not a feature map (indices, probabilities)
  kOutputGradient,     // dY
  kInputGradient,      // dX
  kParameterGradient,  // dW
  kState,              // of the optimizer
  kGradientNorm        // norm and scale of all gradients; read by updates where gradients are clipped
};

struct Operand {
  OperandRole role = OperandRole::kInput;
  std::uint32_t index = 0;
  friend bool operator==(const Operand&, const Operand&) = default;
};

enum class Direction : std::uint8_t { kForward, kBackwardData, kBackwardFilter, kUpdate };

// A way to compute one op. `workspace_bytes` counts everything that lives for the op alone: the library's
// scratchpad and converted copies of filters.
struct Algorithm {
  std::string name;
  std::uint64_t workspace_bytes = 0;
  bool deterministic = true;  // same operands, same bits
};

// Write `write` may take the memory of read `read` (positions in the lists of the op): a permission, used
// where the value read is not needed afterwards.
struct Overwrite {
  std::uint32_t write = 0;
  std::uint32_t read = 0;
};

struct OpRecipe {
  Direction direction = Direction::kForward;
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  std::vector<Overwrite> may_overwrite;
  std::vector<Algorithm> algorithms;  // at least one; the first is the library's own first choice
  Cost cost;
};

enum class Initializer : std::uint8_t {
  kZero,
  kOne,
  kHeNormal,  // normal, variance 2 / fan_in (He et al. 2015): what a rectifier follows
  // Normal, deviation 0.01 (as Simonyan and Zisserman 2015): for the layer that makes the logits. No
  // rectifier follows it, and large logits at the start spoil the first steps.
  kLogitsNormal
};

struct ParameterRecipe {
  std::string name;                 // "filter", "bias"
  TensorType type;                  // logical; what hashes and checkpoints see, in KRSC order
  std::uint64_t storage_bytes = 0;  // as the device holds it (blocked, padded)
  Initializer initializer = Initializer::kZero;
  std::int64_t fan_in = 0;  // of kHeNormal
  // The catalog's name for how it lies: programs of one device that give a parameter the same name can share
  // it.
  std::string storage_layout;
  // False: no gradient, no update; an op of the forward pass may write it (running statistics).
  bool trainable = true;
};

struct SavedRecipe {
  std::string name;
  TensorType type;
};

// Ops stand in the order in which they run. An op in `backward` that writes no input gradient and no
// parameter gradient that anybody asked for is dropped, so gradients of data inputs are never computed,
// unless they come with others.
struct LayerRecipe {
  std::vector<ParameterRecipe> parameters;
  std::vector<SavedRecipe> saved;
  std::vector<OpRecipe> forward;
  std::vector<OpRecipe> backward;
};

// Updates of one parameter: state of the optimizer (each as many bytes as the parameter, laid out like it)
// and the op, which reads and writes Parameter 0 and State, and reads ParameterGradient 0 and, with clipping,
// GradientNorm 0 as its last.
struct UpdateRecipe {
  std::vector<SavedRecipe> state;
  OpRecipe op;
};

enum class Mode : std::uint8_t { kTraining, kInference };  // inference saves nothing, has no backward

// Stateless after construction; thread-safe.
class OpCatalog {
 public:
  virtual ~OpCatalog() = default;

  // `inputs` and `outputs` are the types of the layer's values. Throws InvalidArgument where the device has
  // no way to compute it.
  virtual LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs, Mode mode) const = 0;
  virtual UpdateRecipe update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                                     bool clipped) const = 0;
  // Reads ParameterGradient 0, 1, ... of `parameters`, writes GradientNorm 0.
  virtual OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                        std::span<const ParameterRecipe> parameters) const = 0;

  // As `algorithms_source` reports it: "onednn 2.6.3".
  virtual std::string algorithms_source() const = 0;
};

}  // namespace vdnn
