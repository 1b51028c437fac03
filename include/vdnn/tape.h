#pragma once
// The tape: one iteration as a straight line of ops (forward, loss, backward, update). Each op names the
// *values* that it reads and makes. A value is not a buffer: the plan and the schedule decide later in which
// memory it lies, when it is offloaded and whether another value overwrites it. Liveness follows from the
// tape alone.
//
// One op makes each value, with two exceptions. *Persistent* values (parameters, the optimizer's state) exist
// before the iteration and may be rewritten in it. Inputs are loaded before their first reader.
//
// Immutable once built; may be read from any number of threads.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "vdnn/op_catalog.h"
#include "vdnn/tensor.h"

namespace vdnn {

using ValueId = std::uint32_t;
using OpId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xffffffffu;

enum class ValueKind : std::uint8_t {
  kInput,              // images
  kTarget,             // labels
  kParameter,          // persistent
  kOptimizerState,     // persistent
  kGradientSum,        // persistent: over the micro-batches of a step
  kFeatureMap,         // made in forward
  kSaved,              // made in forward for backward, not a feature map
  kGradientMap,        // made in backward
  kParameterGradient,  // made in backward
  kMetrics,            // of a loss; read by the host
  kGradientNorm,       // of all gradients, for clipping and loss scaling
  kParameterCopy,      // persistent: of a parameter, in the narrow type that ops read
  kLossScale,          // persistent: if losses are scaled
  kGradientStatistic   // made in backward for a later op of the layer: means of synchronised normalisation
};

struct Value {
  std::string name;  // unique: "conv1.y", "conv1.filter"
  ValueKind kind = ValueKind::kFeatureMap;
  TensorType type;          // logical
  std::uint64_t bytes = 0;  // as the device holds it

  bool persistent() const {
    return kind == ValueKind::kParameter || kind == ValueKind::kParameterCopy ||
           kind == ValueKind::kOptimizerState || kind == ValueKind::kGradientSum ||
           kind == ValueKind::kLossScale;
  }
  bool loaded() const { return kind == ValueKind::kInput || kind == ValueKind::kTarget; }
};

enum class Phase : std::uint8_t { kForward, kBackward, kUpdate };

struct Op {
  std::string name;  // unique: "conv1.forward", "conv1.backward_filter"
  // Absent if the op belongs to no layer, for example the norm of all gradients or a sum over ranks for
  // several layers.
  std::optional<std::uint32_t> layer;
  Phase phase = Phase::kForward;
  Direction direction = Direction::kForward;
  std::uint32_t position = 0;  // in LayerRecipe::forward or ::backward
  OpSpec spec;
  // Types of the layer's inputs and outputs. A library builds the op from them, `spec` and `direction`.
  std::vector<TensorType> layer_inputs;
  std::vector<TensorType> layer_outputs;
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::vector<Overwrite> may_overwrite;
  std::vector<Algorithm> algorithms;
  Cost cost;

  // Whether all ranks take part in the op. The communicator runs such an op, not the op library's program.
  bool collective() const { return std::holds_alternative<AllReduceSpec>(spec); }
  // Whether the op converts a gradient to the type in which ranks send it, or back.
  bool converts_gradient() const {
    return std::holds_alternative<ConversionSpec>(spec) && phase == Phase::kUpdate;
  }
  // Whether checkpoints record the op's algorithm. Ops that sum gradients have no choice of algorithm. They
  // may differ or be absent when training continues with another number of ranks.
  bool recorded() const {
    return !collective() && !converts_gradient() && !std::holds_alternative<GradientSumSpec>(spec);
  }
  // The cost with the algorithm of that index.
  const Cost& cost_with(std::uint32_t algorithm) const {
    const std::optional<Cost>& own = algorithms[algorithm].cost;
    return own ? *own : cost;
  }
};

// The properties of a layer that policies use.
struct TapeLayer {
  std::string name;
  bool convolution = false;
  bool classifier = false;  // a fully connected layer or anything computed from one
};

// A parameter with the data that initialisation, updates and hashes need. Parameters are in order of
// creation.
struct TapeParameter {
  ValueId value = kNone;
  std::vector<ValueId> state;
  ValueId copy = kNone;          // made from the parameter, and read by ops in its place; not in checkpoints
  ValueId gradient_sum = kNone;  // where gradients are accumulated; not in checkpoints
  ParameterRecipe recipe;
};

class Tape {
 public:
  struct Parts {
    std::string model;
    std::vector<Value> values;
    std::vector<Op> ops;
    std::vector<TapeLayer> layers;
    std::vector<TapeParameter> parameters;
    ValueId loss_scale = kNone;   // a LossScale, if losses are scaled
    std::vector<ValueId> inputs;  // the inputs of a step, in this order: images, then targets
    // The values that the host reads after each step, in this order: the metrics of each loss, the network's
    // outputs, the norm of the gradients if they are clipped, and the values that the caller asked for.
    std::vector<ValueId> results;
    std::vector<float> loss_weights;  // by loss
  };

  // Throws InvalidArgument if the parts break a rule. Examples are an operand out of range, a value that is
  // read before it is made or is made twice, an op without an algorithm, and a result that no op makes.
  explicit Tape(Parts parts);

  const Parts& parts() const { return parts_; }
  const std::string& model() const { return parts_.model; }
  std::span<const Value> values() const { return parts_.values; }
  std::span<const Op> ops() const { return parts_.ops; }
  std::span<const TapeLayer> layers() const { return parts_.layers; }
  std::span<const TapeParameter> parameters() const { return parts_.parameters; }
  ValueId loss_scale() const { return parts_.loss_scale; }
  std::span<const ValueId> inputs() const { return parts_.inputs; }
  std::span<const ValueId> results() const { return parts_.results; }
  std::size_t losses() const { return parts_.loss_weights.size(); }
  float loss_weight(std::size_t loss) const { return parts_.loss_weights[loss]; }
  // kNone if no value has that name.
  ValueId find_value(std::string_view name) const;

  const Value& value(ValueId id) const { return parts_.values[id]; }
  const Op& op(OpId id) const { return parts_.ops[id]; }
  // Null if the op belongs to no layer.
  const TapeLayer* layer_of(const Op& op) const { return op.layer ? &parts_.layers[*op.layer] : nullptr; }

  // The op that makes the value (kNone for inputs and persistent values), and the ops that read it, in order.
  OpId producer(ValueId id) const { return producers_[id]; }
  std::span<const OpId> readers(ValueId id) const { return readers_[id]; }
  // The last op that reads or makes the value; kNone if none does.
  OpId last_use(ValueId id) const;
  // Whether any op is collective.
  bool collective() const;
  // Number of forward ops; they come first.
  OpId forward_ops() const { return forward_ops_; }

  // Sums, in bytes.
  std::uint64_t feature_map_bytes() const;  // feature maps and the images
  std::uint64_t weight_bytes() const;       // all parameters

 private:
  void check_operands() const;
  void check_names() const;
  void index_uses();

  Parts parts_;
  std::vector<OpId> producers_;
  std::vector<std::vector<OpId>> readers_;
  OpId forward_ops_ = 0;
};

}  // namespace vdnn
