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
  kParameter,       // W; of a layer's op, its copy where there is one
  kSaved,           // made by forward for backward, not a feature map (indices, probabilities); where it is
                    // summed over ranks, by any op for those of its layer that follow
  kOutputGradient,  // dY
  kInputGradient,   // dX
  kParameterGradient,  // dW
  kState,              // of the optimizer
  kGradientNorm,   // norm and scale of all gradients; read by updates where gradients are clipped or losses
                   // scaled
  kGradientSum,    // over the micro-batches of a step
  kParameterCopy,  // of an update: what it writes beside the parameter
  kLossScale       // where losses are scaled: the last that the norm of the gradients reads
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
  std::optional<Cost> cost;   // where it is another than the op's
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
  // Elements as the device holds it.
  std::uint64_t stored_elements() const { return storage_bytes / size_of(type.data_type); }
  std::uint64_t copy_bytes() const { return copy ? stored_elements() * size_of(*copy) : 0; }

  std::string name;                 // "filter", "bias"
  TensorType type;                  // logical; what hashes and checkpoints see, in KRSC order
  std::uint64_t storage_bytes = 0;  // as the device holds it (blocked, padded)
  Initializer initializer = Initializer::kZero;
  std::int64_t fan_in = 0;  // of kHeNormal
  // The catalog's name for how it lies: programs of one device that give a parameter the same name can share
  // it.
  std::string storage_layout;
  // The type that the layer's ops read it in, if that is not its own: from a copy that lies like the
  // parameter, element by element, and is kept from step to step.
  std::optional<DataType> copy;
  // False: no gradient, no update; an op of the forward pass may write it (running statistics).
  bool trainable = true;
};

struct SavedRecipe {
  std::string name;
  TensorType type;
  // What the op makes is this rank's share; after it the shares of all ranks are summed, and ops that follow
  // read the sum.
  bool summed_over_ranks = false;
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
// and the op, which reads and writes Parameter 0 and State, and reads ParameterGradient 0 and, if `scaled`,
// GradientNorm 0 as its last. Where the parameter has a copy, it writes ParameterCopy 0 as its last.
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
                                     bool scaled) const = 0;
  // Reads ParameterGradient 0, 1, ... of `parameters`, and LossScale 0 where losses are scaled; writes
  // GradientNorm 0.
  virtual OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                        std::span<const ParameterRecipe> parameters) const = 0;

  // Reads ParameterGradient 0 and GradientSum 0 of the parameter, writes GradientSum 0 in place.
  virtual OpRecipe gradient_sum_recipe(const ParameterRecipe& parameter) const = 0;

  // As `algorithms_source` reports it: "onednn 2.6.3".
  virtual std::string algorithms_source() const = 0;
};

}  // namespace vdnn
