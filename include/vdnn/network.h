#pragma once
// A network as the user defines it. Layers over named feature maps form a directed acyclic graph. A
// NetworkBuilder checks every layer as it is added and knows every shape; a Network is immutable.
//
//   NetworkBuilder net("tiny", {64, 1, 28, 28});
//   auto x = net.relu("relu1", net.convolution("conv1", net.input(), {.filters = 8, .kernel = {3, 3},
//                                                                     .stride = {1, 1}, .padding = {1, 1}}));
//   net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
//   Network network = std::move(net).build();
//
// Layer `conv1` makes feature map `conv1.y`. A network has one input (images) and one or more losses;
// training minimises their weighted sum. The host reads feature maps marked as outputs after each step.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"
#include "vdnn/precision.h"
#include "vdnn/tape.h"
#include "vdnn/tensor.h"

namespace vdnn {

// A feature map (or targets) of one builder.
struct Tensor {
  std::uint32_t id = kNone;
};

struct Layer {
  std::string name;
  OpSpec spec;
  std::vector<std::uint32_t> inputs;  // feature maps; for a loss: prediction, then targets
  std::uint32_t output = kNone;
};

// Immutable.
class Network {
 public:
  const std::string& name() const { return name_; }
  std::span<const Layer> layers() const { return layers_; }
  std::size_t feature_maps() const { return types_.size(); }
  const TensorType& type(std::uint32_t feature_map) const { return types_[feature_map]; }
  const std::string& feature_map_name(std::uint32_t id) const { return names_[id]; }
  std::uint32_t input() const { return 0; }  // images
  // The targets of the losses, in the order in which a step expects them. Their first dimension is the batch.
  std::span<const std::uint32_t> targets() const { return targets_; }
  // Feature maps that the host reads after each step.
  std::span<const std::uint32_t> outputs() const { return outputs_; }
  std::int64_t batch() const { return types_[0].dims[0]; }
  // The number of classes of the first loss over classes; 0 without one.
  std::int64_t classes() const;
  // Returns the network for another batch size. Throws InvalidArgument if a custom layer does not support it.
  Network with_batch(std::int64_t batch) const;
  // Returns the network with feature maps of these types, and with the conversions that its layers then need
  // (precision.h). Feature maps keep their ids and names; inputs, targets and outputs keep their order.
  // Throws InvalidArgument if the storage type is not a floating-point type, if an exception names no layer
  // and no kind of layer, and if the network has conversions already.
  Network with_precision(const PrecisionOptions& options) const;

 private:
  friend class NetworkBuilder;
  std::string name_;
  std::vector<Layer> layers_;
  std::vector<TensorType> types_;
  std::vector<std::string> names_;
  std::vector<std::uint32_t> targets_;
  std::vector<std::uint32_t> outputs_;
};

// Not thread-safe. Every function throws InvalidArgument with the layer's name and the shapes involved, and
// with the names of both layers if two do not fit together.
class NetworkBuilder {
 public:
  // `input`: N, C, then space.
  NetworkBuilder(std::string name, Dims input);

  Tensor input() const { return {0}; }
  // Targets for one loss. Their first dimension is N; classes are i32.
  Tensor target(const std::string& name, TensorType type);

  // Adds any layer; the functions below are shorthands for this one.
  Tensor layer(const std::string& name, OpSpec spec, const std::vector<Tensor>& inputs);

  Tensor convolution(const std::string& name, Tensor x, ConvolutionSpec spec);
  Tensor transposed_convolution(const std::string& name, Tensor x, TransposedConvolutionSpec spec);
  Tensor fully_connected(const std::string& name, Tensor x, FullyConnectedSpec spec);
  Tensor relu(const std::string& name, Tensor x, float negative_slope = 0);
  Tensor sigmoid(const std::string& name, Tensor x);
  Tensor pooling(const std::string& name, Tensor x, PoolingSpec spec);
  Tensor global_pooling(const std::string& name, Tensor x, PoolingMode mode);  // every extent becomes 1
  Tensor upsampling(const std::string& name, Tensor x, UpsamplingSpec spec);
  Tensor add(const std::string& name, Tensor a, Tensor b);
  Tensor concatenation(const std::string& name, const std::vector<Tensor>& inputs);
  Tensor batch_normalization(const std::string& name, Tensor x, BatchNormalizationSpec spec = {});
  Tensor group_normalization(const std::string& name, Tensor x, GroupNormalizationSpec spec);
  Tensor instance_normalization(const std::string& name, Tensor x, float epsilon = 1e-5F);
  Tensor lrn(const std::string& name, Tensor x, LrnSpec spec = {});
  Tensor dropout(const std::string& name, Tensor x, float probability = 0.5F);
  Tensor custom(const std::string& name, const std::vector<Tensor>& inputs,
                std::shared_ptr<const CustomLayer> layer);

  // Losses. A loss that is given no targets uses the targets named "targets", which all such losses share.
  // The first such loss determines their type.
  void softmax_cross_entropy(const std::string& name, Tensor logits, SoftmaxCrossEntropySpec spec = {},
                             std::optional<Tensor> targets = {});
  void mean_squared_error(const std::string& name, Tensor prediction, MeanSquaredErrorSpec spec = {},
                          std::optional<Tensor> targets = {});
  void dice_cross_entropy(const std::string& name, Tensor logits, DiceCrossEntropySpec spec = {},
                          std::optional<Tensor> targets = {});

  // Marks a feature map as an output: the host reads it after each step.
  void output(Tensor x);

  // The type of a feature map of this builder.
  const TensorType& type(Tensor x) const;

  // Throws InvalidArgument if there is no loss, or if nothing reads a feature map or targets.
  Network build() &&;

 private:
  Tensor append(const std::string& name, OpSpec spec, std::vector<std::uint32_t> inputs, TensorType output);
  void loss(const std::string& name, OpSpec spec, Tensor prediction, std::optional<Tensor> targets);
  Tensor shared_targets(const std::string& name, TensorType type);
  bool is_target(std::uint32_t id) const;

  Network network_;
  std::optional<Tensor> shared_targets_;
};

// A layer that names its inputs: a feature map by the name of the layer that makes it, the input as "images",
// targets by their names. A loss without a second input uses the shared targets.
struct LayerDescription {
  std::string name;
  OpSpec spec;
  std::vector<std::string> inputs;
  bool output = false;
};
struct TargetDescription {
  std::string name;
  TensorType type;
};
// A network from layers in any order. Throws InvalidArgument as NetworkBuilder does, and for an input that no
// layer makes, a name that repeats, and a cycle; the message names the layers of the cycle.
Network build_network(const std::string& name, const Dims& input, std::vector<LayerDescription> layers,
                      const std::vector<TargetDescription>& targets = {});

// The default size of a bucket of gradients, in bytes: that of PyTorch's DistributedDataParallel
// (bucket_cap_mb; Li et al., VLDB 2020).
inline constexpr std::uint64_t kBucketBytes = std::uint64_t{25} << 20U;

// How the tape of a training step is lowered.
struct TrainingOptions {
  OptimizerSpec optimizer = SgdSpec{};
  // Gradients are scaled so that their norm is at most this; > 0. All gradients then live until the end of
  // the backward pass, and updates follow it. The host reads the norm (StepMetrics::gradient_norm).
  std::optional<float> clip_norm;
  // Data parallelism. In every update `ranks` ranks take part, each with one batch per micro-step. Losses are
  // divided by the number of all these batches, and gradients are summed over them. Each rank first sums its
  // own gradients over its micro-steps, as a left fold in separate memory. Then these sums are summed over
  // the ranks in buckets: each bucket as soon as the backward pass has made `bucket_bytes` of gradients. With
  // several ranks all gradients live until the end of the backward pass; updates follow it, and each update
  // waits for its bucket. `ranks`, `micro_steps` and `bucket_bytes` are at least 1.
  std::uint32_t ranks = 1;
  std::uint32_t micro_steps = 1;
  std::uint64_t bucket_bytes = kBucketBytes;
  // The type in which several ranks send gradients: kF32, or kF16 or kBf16 with half the bytes. A rank's
  // gradient is rounded to that type once, after its micro-steps, and so is the communicator's sum. The
  // update uses the sum in fp32. With kF16 a sum beyond 65504 becomes an infinity, which loss scaling
  // detects.
  DataType reduce_precision = DataType::kF32;
  DataType reduces_in() const { return ranks > 1 ? reduce_precision : DataType::kF32; }
  // Batch normalisation computes its statistics over the batches of all ranks, in every micro-step. The ranks
  // then wait for each other in each such layer, twice in forward and once in backward.
  bool sync_batch_normalization = false;
  bool normalizes_over_ranks() const { return sync_batch_normalization && ranks > 1; }
  // How feature maps are stored. With fp16 losses are scaled.
  PrecisionOptions precision;
  LossScaling loss_scaling;
  bool scales_losses() const { return precision.storage == DataType::kF16; }
  // Names of further values that the host reads after each step: "fc.y", "conv1.filter.gradient". If losses
  // are scaled, gradients are those of the scaled losses: divide them by StepMetrics::Scaling::scale.
  std::vector<std::string> results;
};

// The tape of one training step: forward, losses, backward and updates. A parameter is updated as soon as its
// gradient is made and its own layer has read the parameter for the last time. The tape keeps no reference to
// its arguments. Throws InvalidArgument for options out of range, for results that no op makes, and for
// layers that the catalog cannot compute.
std::shared_ptr<const Tape> lower_to_tape(const Network& network, const OpCatalog& catalog,
                                          const TrainingOptions& options);
// The tape of evaluation: forward and losses only, and ops save nothing for a backward pass. Its parameters
// are those of the training tape of that precision, in the same order and storage.
std::shared_ptr<const Tape> lower_to_evaluation_tape(const Network& network, const OpCatalog& catalog,
                                                     const PrecisionOptions& precision = {});

}  // namespace vdnn
