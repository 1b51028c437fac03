#pragma once
// How a layer becomes ops on a given device. A catalog returns the *recipe* of a layer: its parameters and
// how the device holds them, the values that its forward pass saves, and the ops of its passes. For each op
// the recipe lists the operands that it reads and writes, the reads that it may overwrite, and its algorithms
// with their workspaces. Each device decides what backward needs: oneDNN's max-pooling saves indices, cuDNN's
// reads X and Y.
//
// A recipe names operands by role and index; `lower_to_tape` (network.h) puts values in their places, sums
// gradients where a feature map forks, and adds the updates. A catalog never sees a network.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/cost.h"
#include "vdnn/op_spec.h"
#include "vdnn/tensor.h"

namespace vdnn {

enum class OperandRole : std::uint8_t {
  kInput,           // X
  kOutput,          // Y
  kParameter,       // W; for a layer's op, its narrow copy if there is one
  kSaved,           // made by a forward op for later ops of the layer, not a feature map: indices, statistics
  kOutputGradient,  // dY
  kInputGradient,   // dX
  kParameterGradient,  // dW
  kState,              // of the optimizer
  kGradientNorm,       // norm and scale of all gradients; updates read it if gradients are clipped or losses
                       // scaled
  kGradientSum,        // over the micro-batches of a step
  kParameterCopy,      // of a parameter, in the narrow type that ops read; an update writes both
  kLossScale,          // if losses are scaled: the last read of the op for the gradient norm
  kGradientStatistic   // made by one backward op for a later one of the same layer, not a gradient
};

struct Operand {
  OperandRole role = OperandRole::kInput;
  std::uint32_t index = 0;
  friend bool operator==(const Operand&, const Operand&) = default;
};

enum class Direction : std::uint8_t { kForward, kBackwardData, kBackwardFilter, kUpdate };

// A way to compute one op; the same operands produce the same bits.
struct Algorithm {
  std::string name;
  std::uint64_t workspace_bytes = 0;  // all memory of the op alone: scratch memory, converted filters
  std::optional<Cost> cost;           // if it differs from the op's
};

// Write `write` may overwrite read `read` (positions in the lists of the op). A plan uses the permission if
// the value that was read is not needed afterwards.
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
  kHeNormal,  // normal, variance 2 / fan_in (He et al. 2015): for layers followed by a rectifier
  // Normal, deviation 0.01 (as Simonyan and Zisserman 2015): for the layer that makes the logits. No
  // rectifier follows it, and large logits at the start spoil the first steps.
  kLogitsNormal
};

struct ParameterRecipe {
  // The number of elements as the device stores the parameter.
  std::uint64_t stored_elements() const { return storage_bytes / size_of(type.data_type); }
  std::uint64_t copy_bytes() const { return copy ? stored_elements() * size_of(*copy) : 0; }

  std::string name;                 // "filter", "bias"
  TensorType type;                  // logical, as in hashes and checkpoints, in KRSC order
  std::uint64_t storage_bytes = 0;  // as the device holds it (blocked, padded)
  Initializer initializer = Initializer::kZero;
  std::int64_t fan_in = 0;  // of kHeNormal
  // The catalog's name for the layout in device memory. Programs of one device can share a parameter if both
  // name the same layout.
  std::string storage_layout;
  // The type in which the layer's ops read the parameter, if it differs from the parameter's own. The ops
  // then read a copy that has the parameter's layout and persists between steps.
  std::optional<DataType> copy;
  // False: no gradient, no update; an op of the forward pass may write it (running statistics).
  bool trainable = true;
};

// A value that ops of the layer make for later ones, or the optimizer's state.
struct ValueRecipe {
  std::string name;
  TensorType type;
  // The op makes this rank's share. The shares of all ranks are then summed, and later ops read the sum.
  bool summed_over_ranks = false;
};

// Ops are listed in the order in which they run. A backward op is dropped if no gradient that it writes is
// needed. So the gradient of a data input is computed only by an op that also writes a needed gradient.
struct LayerRecipe {
  std::vector<ParameterRecipe> parameters;
  std::vector<ValueRecipe> saved;  // Saved 0, 1, ...
  std::vector<OpRecipe> forward;
  std::vector<OpRecipe> backward;
  std::vector<ValueRecipe> gradient_statistics = {};  // GradientStatistic 0, 1, ...
};

// The update of one parameter. Each state of the optimizer has the parameter's size and layout. The op reads
// and writes Parameter 0 and all State, and reads ParameterGradient 0. If gradients are scaled, its last read
// is GradientNorm 0. If the parameter has a copy, its last write is ParameterCopy 0.
struct UpdateRecipe {
  std::vector<ValueRecipe> state;
  OpRecipe op;
};

// Inference saves nothing and has no backward pass.
enum class Mode : std::uint8_t { kTraining, kInference };

// Stateless after construction; thread-safe.
class OpCatalog {
 public:
  virtual ~OpCatalog() = default;

  // `inputs` and `outputs` are the types of the layer's values. Throws InvalidArgument if the device cannot
  // compute the layer.
  virtual LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs, Mode mode) const = 0;
  // `scaled`: gradients are multiplied by the factor in GradientNorm 0.
  virtual UpdateRecipe update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                                     bool scaled) const = 0;
  // The op reads ParameterGradient 0, 1, ... of `parameters`, and LossScale 0 if losses are scaled. It writes
  // GradientNorm 0.
  virtual OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                        std::span<const ParameterRecipe> parameters) const = 0;

  // The op adds ParameterGradient 0 of the parameter to GradientSum 0, in place.
  virtual OpRecipe gradient_sum_recipe(const ParameterRecipe& parameter) const = 0;

  // The library and its version, as the report field `algorithms_source` shows them: "onednn 2.6.3".
  virtual std::string algorithms_source() const = 0;
};

}  // namespace vdnn
