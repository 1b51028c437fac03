#pragma once
// A network: what the user writes. Layers over named feature maps form a directed acyclic graph; a
// NetworkBuilder checks every layer as it is added and knows every shape, a Network cannot change any more.
//
//   NetworkBuilder net("tiny", {64, 1, 28, 28});
//   auto x = net.relu("relu1", net.convolution("conv1", net.input(), {.filters = 8, .kernel = {3, 3},
//                                                                     .stride = {1, 1}, .padding = {1, 1}}));
//   net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
//   Network network = std::move(net).build();
//
// Layer `conv1` makes feature map `conv1.y`. A network has one input (images) and one or more losses, whose
// weighted sum is what training minimises; feature maps marked as outputs are given back to the host after
// each step.

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
  // What the losses compare with, in the order in which a step is given them; batch first.
  std::span<const std::uint32_t> targets() const { return targets_; }
  // Feature maps that are given back to the host.
  std::span<const std::uint32_t> outputs() const { return outputs_; }
  std::int64_t batch() const { return types_[0].dims[0]; }
  // Classes that the first loss over classes tells apart; 0 without one.
  std::int64_t classes() const;
  // The same layers for another batch size. Throws InvalidArgument where a custom layer cannot.
  Network with_batch(std::int64_t batch) const;
  // The same layers over feature maps of such types, with the conversions that this takes (precision.h).
  // Feature maps keep their numbers and names; those that the host is given or gives keep their place. Throws
  // InvalidArgument for a storage that is none of floating-point numbers, and for exceptions that name no
  // layer and no kind of one.
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
// the names of both layers where two do not fit together.
class NetworkBuilder {
 public:
  // `input`: N, C, then space.
  NetworkBuilder(std::string name, Dims input);

  Tensor input() const { return {0}; }
  // Targets of a loss of their own: N first; i32 for classes.
  Tensor target(const std::string& name, TensorType type);

  // Any layer; the others are shorthands for this one.
  Tensor layer(const std::string& name, OpSpec spec, const std::vector<Tensor>& inputs);

  Tensor convolution(const std::string& name, Tensor x, ConvolutionSpec spec);
  Tensor transposed_convolution(const std::string& name, Tensor x, TransposedConvolutionSpec spec);
  Tensor fully_connected(const std::string& name, Tensor x, FullyConnectedSpec spec);
  Tensor relu(const std::string& name, Tensor x, float negative_slope = 0);
  Tensor sigmoid(const std::string& name, Tensor x);
  Tensor pooling(const std::string& name, Tensor x, PoolingSpec spec);
  Tensor global_pooling(const std::string& name, Tensor x, PoolingMode mode);  // to an extent of 1 each way
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

  // Losses. Without targets of their own they share `targets`, which the first of them shapes.
  void softmax_cross_entropy(const std::string& name, Tensor logits, SoftmaxCrossEntropySpec spec = {},
                             std::optional<Tensor> targets = {});
  void mean_squared_error(const std::string& name, Tensor prediction, MeanSquaredErrorSpec spec = {},
                          std::optional<Tensor> targets = {});
  void dice_cross_entropy(const std::string& name, Tensor logits, DiceCrossEntropySpec spec = {},
                          std::optional<Tensor> targets = {});

  // The feature map is given back to the host.
  void output(Tensor x);

  // Of a feature map of this builder.
  const TensorType& type(Tensor x) const;

  // Throws InvalidArgument without a loss, or with a feature map or targets that nobody reads.
  Network build() &&;

 private:
  Tensor append(const std::string& name, OpSpec spec, std::vector<std::uint32_t> inputs, TensorType output);
  void loss(const std::string& name, OpSpec spec, Tensor prediction, std::optional<Tensor> targets);
  Tensor shared_targets(const std::string& name, TensorType type);
  bool is_target(std::uint32_t id) const;

  Network network_;
  std::optional<Tensor> shared_targets_;
};

// A layer that names its inputs: feature maps by the names of the layers that make them; "images" and the
// names of targets for the rest. A loss without a second input takes the shared targets.
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
// layer makes, a name that repeats, and a cycle, which it names.
Network build_network(const std::string& name, const Dims& input, std::vector<LayerDescription> layers,
                      const std::vector<TargetDescription>& targets = {});

// Of the gradients that are reduced together, where nothing else is asked for: as PyTorch's
// DistributedDataParallel has it (bucket_cap_mb; Li et al., VLDB 2020).
inline constexpr std::uint64_t kBucketBytes = std::uint64_t{25} << 20U;

// How a training tape is lowered.
struct TrainingOptions {
  OptimizerSpec optimizer = SgdSpec{};
  // Gradients are scaled so that their norm is at most this; > 0. All gradients then live until the end of
  // the backward pass, and updates follow it. The host is given the norm (StepMetrics::gradient_norm).
  std::optional<float> clip_norm;
  // Data parallelism: so many ranks take part in every update, each with a batch of its own, or, one after
  // the other, with as many as there are micro-steps. Losses are divided by the number of all these batches,
  // and gradients summed over them: first the rank's own, a left fold over its micro-steps in memory of their
  // own, then over the ranks, in buckets, each as soon as the backward pass has made so many bytes of
  // gradients. With several ranks all gradients live until the end of the backward pass, and updates follow
  // it, each waiting for its bucket. All are at least 1.
  std::uint32_t ranks = 1;
  std::uint32_t micro_steps = 1;
  std::uint64_t bucket_bytes = kBucketBytes;
  // How several ranks send gradients: kF32, or kF16 or kBf16, in half the bytes. A rank's gradient is then
  // rounded to that type once, behind its micro-steps, and so is what the communicator makes of all of them;
  // the update goes by the sum in fp32. With kF16 a sum beyond 65504 is an infinity, which loss scaling sees.
  DataType reduce_precision = DataType::kF32;
  DataType reduces_in() const { return ranks > 1 ? reduce_precision : DataType::kF32; }
  // Batch normalisation takes its statistics over the batches of all ranks, in every micro-step. Ranks then
  // wait for each other in each such layer, twice in forward and once in backward.
  bool sync_batch_normalization = false;
  bool normalizes_over_ranks() const { return sync_batch_normalization && ranks > 1; }
  // How feature maps are stored. With fp16 losses are scaled.
  PrecisionOptions precision;
  LossScaling loss_scaling;
  bool scales_losses() const { return precision.storage == DataType::kF16; }
  // Names of further values that the host is given after each step: "fc.y", "conv1.filter.gradient". Where
  // losses are scaled, gradients are those of the scaled losses: divide them by StepMetrics::Scaling::scale.
  std::vector<std::string> results;
};

// The tape of one training step: forward, losses, backward, and the update of each parameter as soon as its
// gradient is made and its own layer has read it for the last time. Throws InvalidArgument for results that
// no op makes.
std::shared_ptr<const Tape> lower_to_tape(const Network& network, const OpCatalog& catalog,
                                          const TrainingOptions& options);
// The tape of evaluation: forward and losses only, nothing saved. Its parameters are those of the training
// tape of that precision, in the same order and form.
std::shared_ptr<const Tape> lower_to_evaluation_tape(const Network& network, const OpCatalog& catalog,
                                                     const PrecisionOptions& precision = {});

}  // namespace vdnn
