#pragma once
// A network: what the user writes. Layers over named feature maps form a directed acyclic graph; a
// NetworkBuilder checks every layer as it is added and knows every shape, a Network cannot change any more.
//
//   NetworkBuilder net("tiny", {64, 1, 28, 28});
//   auto x = net.relu("relu1", net.convolution("conv1", net.input(), {.filters = 8, .kernel = {3, 3},
//                                                                     .stride = {1, 1}, .padding = {1, 1}}));
//   net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
//   Network network = std::move(net).build();

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"
#include "vdnn/tape.h"
#include "vdnn/tensor.h"

namespace vdnn {

// A feature map of one builder.
struct Tensor {
  std::uint32_t id = kNone;
};

struct Layer {
  std::string name;
  OpSpec spec;
  std::vector<std::uint32_t> inputs;  // feature maps; for the loss: logits, then the targets
  std::uint32_t output = kNone;
};

// Immutable.
class Network {
 public:
  const std::string& name() const { return name_; }
  std::span<const Layer> layers() const { return layers_; }
  const TensorType& type(std::uint32_t feature_map) const { return types_[feature_map]; }
  const std::string& feature_map_name(std::uint32_t id) const { return names_[id]; }
  std::uint32_t input() const { return 0; }    // images
  std::uint32_t targets() const { return 1; }  // one i32 a sample
  std::int64_t batch() const { return types_[0].dims[0]; }
  // Classes that the loss tells apart.
  std::int64_t classes() const;

 private:
  friend class NetworkBuilder;
  std::string name_;
  std::vector<Layer> layers_;
  std::vector<TensorType> types_;
  std::vector<std::string> names_;
};

// Not thread-safe. Every function throws InvalidArgument with the layer's name and the shapes involved.
class NetworkBuilder {
 public:
  // `input`: N, C, then space.
  NetworkBuilder(std::string name, Dims input);

  Tensor input() const { return {0}; }
  Tensor convolution(const std::string& name, Tensor x, ConvolutionSpec spec);
  Tensor fully_connected(const std::string& name, Tensor x, FullyConnectedSpec spec);
  Tensor relu(const std::string& name, Tensor x);
  Tensor pooling(const std::string& name, Tensor x, PoolingSpec spec);
  Tensor add(const std::string& name, Tensor a, Tensor b);
  // Ends the network: one loss.
  void softmax_cross_entropy(const std::string& name, Tensor logits);

  const TensorType& type(Tensor x) const;

  // Throws InvalidArgument without a loss, or with a feature map that nobody reads.
  Network build() &&;

 private:
  Tensor append(const std::string& name, OpSpec spec, std::vector<std::uint32_t> inputs, TensorType output);
  Network network_;
  bool has_loss_ = false;
};

// The tape of one training step: forward, loss, backward, and the update of each parameter as soon as its
// gradient is made and its own layer has read it for the last time.
std::shared_ptr<const Tape> lower_to_tape(const Network& network, const OpCatalog& catalog,
                                          const SgdSpec& optimizer);
// The tape of evaluation: forward and loss only, nothing saved. Its parameters are those of the training
// tape, in the same order and form.
std::shared_ptr<const Tape> lower_to_evaluation_tape(const Network& network, const OpCatalog& catalog);

}  // namespace vdnn
