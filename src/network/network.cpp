#include "vdnn/network.h"

#include <algorithm>

#include "src/network/shapes.h"
#include "vdnn/error.h"

namespace vdnn {

std::int64_t Network::classes() const {
  for (const Layer& layer : layers_) {
    if (is_loss(layer.spec) && !std::holds_alternative<MeanSquaredErrorSpec>(layer.spec)) {
      return types_[layer.inputs[0]].dims[1];
    }
  }
  return 0;
}

Network Network::with_batch(std::int64_t batch) const {
  Network other = *this;
  const auto set_batch = [&](std::uint32_t id) {
    other.types_[id].dims[0] = batch;
    other.types_[id].bytes();  // throws on overflow, and for a batch that is not positive
  };
  set_batch(input());
  for (const std::uint32_t target : targets_) {
    set_batch(target);
  }
  for (const Layer& layer : layers_) {
    std::vector<NamedType> inputs;
    for (const std::uint32_t id : layer.inputs) {
      inputs.push_back({names_[id], other.types_[id]});
    }
    other.types_[layer.output] = infer_output(layer.name, layer.spec, inputs);
  }
  return other;
}

namespace {

[[noreturn]] void reject(const std::string& layer, const std::string& why) {
  throw InvalidArgument("layer " + layer + ": " + why);
}

// The name must not contain a dot: names of values and ops consist of a layer's name, a dot and a suffix.
void check_name(const std::string& name) {
  if (name.empty() || name.find('.') != std::string::npos) {
    reject("'" + name + "'", "a name must not be empty nor contain a dot");
  }
}

// The name of the tensor in messages.
std::string called(const std::vector<std::string>& names, std::uint32_t id) {
  if (id == kNone) {
    return "an empty tensor";
  }
  return id < names.size() ? "'" + names[id] + "'" : "tensor " + std::to_string(id);
}

// The type of `x`, an input of a new layer. Messages of errors have the layer's name.
const TensorType& type_for(const std::string& layer, const NetworkBuilder& net, Tensor x) {
  try {
    return net.type(x);
  } catch (const InvalidArgument& error) {
    reject(layer, error.what());
  }
}

}  // namespace

NetworkBuilder::NetworkBuilder(std::string name, Dims input) {
  network_.name_ = std::move(name);
  if (input.size() < 2) {
    throw InvalidArgument("network " + network_.name_ + ": input '" + to_string(input) +
                          "' needs N, C, then space");
  }
  TensorType images{.dims = std::move(input)};
  try {
    images.bytes();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("network " + network_.name_ + ": input: " + error.what());
  }
  network_.types_ = {std::move(images)};
  network_.names_ = {"images"};
}

Tensor NetworkBuilder::target(const std::string& name, TensorType type) {
  check_name(name);
  if (std::ranges::find(network_.names_, name) != network_.names_.end()) {
    reject(name, "the name is taken");
  }
  if (type.dims.empty() || type.dims[0] != network_.batch()) {
    reject(name, "targets " + to_string(type.dims) + " must begin with the batch, " +
                     std::to_string(network_.batch()));
  }
  type.bytes();
  const auto id = static_cast<std::uint32_t>(network_.types_.size());
  network_.types_.push_back(std::move(type));
  network_.names_.push_back(name);
  network_.targets_.push_back(id);
  return {id};
}

bool NetworkBuilder::is_target(std::uint32_t id) const {
  return std::ranges::find(network_.targets_, id) != network_.targets_.end();
}

const TensorType& NetworkBuilder::type(Tensor x) const {
  if (x.id >= network_.types_.size() || is_target(x.id)) {
    throw InvalidArgument("network " + network_.name_ + ": " + called(network_.names_, x.id) +
                          " is no feature map");
  }
  return network_.types_[x.id];
}

Tensor NetworkBuilder::append(const std::string& name, OpSpec spec, std::vector<std::uint32_t> inputs,
                              TensorType output) {
  if (auto* dropout = std::get_if<DropoutSpec>(&spec); dropout != nullptr && dropout->key == 0) {
    // The key depends only on earlier layers, so layers added later do not change this layer's mask.
    dropout->key = network_.layers_.size() + 1;
  }
  const auto id = static_cast<std::uint32_t>(network_.types_.size());
  network_.names_.push_back(name + (is_loss(spec) ? ".metrics" : ".y"));
  network_.types_.push_back(std::move(output));
  network_.layers_.push_back({name, std::move(spec), std::move(inputs), id});
  return {id};
}

Tensor NetworkBuilder::layer(const std::string& name, OpSpec spec, const std::vector<Tensor>& inputs) {
  check_name(name);
  if (std::ranges::any_of(network_.layers_, [&](const Layer& layer) { return layer.name == name; })) {
    reject(name, "the name is taken");
  }
  const bool loss = is_loss(spec);
  std::vector<NamedType> types;
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::uint32_t id = inputs[i].id;
    const bool made_by_loss = std::ranges::any_of(
        network_.layers_, [&](const Layer& layer) { return layer.output == id && is_loss(layer.spec); });
    if (id >= network_.types_.size() || is_target(id) != (loss && i == 1) || made_by_loss) {
      reject(name, "input " + std::to_string(i) + ", " + called(network_.names_, id) + ", is no " +
                       (loss && i == 1 ? "targets" : "feature map") + " of this network");
    }
    types.push_back({network_.names_[id], network_.types_[id]});
    ids.push_back(id);
  }
  TensorType output = infer_output(name, spec, types);
  return append(name, std::move(spec), std::move(ids), std::move(output));
}

Tensor NetworkBuilder::convolution(const std::string& name, Tensor x, ConvolutionSpec spec) {
  return layer(name, std::move(spec), {x});
}

Tensor NetworkBuilder::transposed_convolution(const std::string& name, Tensor x,
                                              TransposedConvolutionSpec spec) {
  return layer(name, std::move(spec), {x});
}

Tensor NetworkBuilder::fully_connected(const std::string& name, Tensor x, FullyConnectedSpec spec) {
  return layer(name, spec, {x});
}

Tensor NetworkBuilder::relu(const std::string& name, Tensor x, float negative_slope) {
  return layer(name, ReluSpec{.negative_slope = negative_slope}, {x});
}

Tensor NetworkBuilder::sigmoid(const std::string& name, Tensor x) {
  return layer(name, SigmoidSpec{}, {x});
}

Tensor NetworkBuilder::pooling(const std::string& name, Tensor x, PoolingSpec spec) {
  return layer(name, std::move(spec), {x});
}

Tensor NetworkBuilder::global_pooling(const std::string& name, Tensor x, PoolingMode mode) {
  const TensorType& input = type_for(name, *this, x);
  const std::size_t rank = input.spatial_rank();
  return layer(
      name,
      PoolingSpec{.mode = mode,
                  .kernel = Dims(input.dims.end() - static_cast<std::ptrdiff_t>(rank), input.dims.end()),
                  .stride = Dims(rank, 1),
                  .padding = Dims(rank, 0)},
      {x});
}

Tensor NetworkBuilder::upsampling(const std::string& name, Tensor x, UpsamplingSpec spec) {
  return layer(name, std::move(spec), {x});
}

Tensor NetworkBuilder::add(const std::string& name, Tensor a, Tensor b) {
  return layer(name, AddSpec{}, {a, b});
}

Tensor NetworkBuilder::concatenation(const std::string& name, const std::vector<Tensor>& inputs) {
  return layer(name, ConcatenationSpec{}, inputs);
}

Tensor NetworkBuilder::batch_normalization(const std::string& name, Tensor x, BatchNormalizationSpec spec) {
  return layer(name, spec, {x});
}

Tensor NetworkBuilder::group_normalization(const std::string& name, Tensor x, GroupNormalizationSpec spec) {
  return layer(name, spec, {x});
}

Tensor NetworkBuilder::instance_normalization(const std::string& name, Tensor x, float epsilon) {
  const Dims& dims = type_for(name, *this, x).dims;
  return layer(name, GroupNormalizationSpec{.groups = dims[1], .epsilon = epsilon}, {x});
}

Tensor NetworkBuilder::lrn(const std::string& name, Tensor x, LrnSpec spec) {
  return layer(name, spec, {x});
}

Tensor NetworkBuilder::dropout(const std::string& name, Tensor x, float probability) {
  return layer(name, DropoutSpec{.probability = probability}, {x});
}

Tensor NetworkBuilder::custom(const std::string& name, const std::vector<Tensor>& inputs,
                              std::shared_ptr<const CustomLayer> custom_layer) {
  return layer(name, CustomSpec{std::move(custom_layer)}, inputs);
}

Tensor NetworkBuilder::shared_targets(const std::string& name, TensorType type) {
  if (!shared_targets_) {
    shared_targets_ = target("targets", std::move(type));
    return *shared_targets_;
  }
  if (network_.types_[shared_targets_->id] != type) {
    reject(name, "needs targets " + to_string(type.dims) + ", but those that all losses share are " +
                     to_string(network_.types_[shared_targets_->id].dims) + ": give it targets of its own");
  }
  return *shared_targets_;
}

void NetworkBuilder::loss(const std::string& name, OpSpec spec, Tensor prediction,
                          std::optional<Tensor> targets) {
  if (!targets) {
    const TensorType& predicted = type_for(name, *this, prediction);
    targets = shared_targets(name, target_type(name, spec, {network_.names_[prediction.id], predicted}));
  }
  layer(name, std::move(spec), {prediction, *targets});
}

void NetworkBuilder::softmax_cross_entropy(const std::string& name, Tensor logits,
                                           SoftmaxCrossEntropySpec spec, std::optional<Tensor> targets) {
  loss(name, spec, logits, targets);
}

void NetworkBuilder::mean_squared_error(const std::string& name, Tensor prediction, MeanSquaredErrorSpec spec,
                                        std::optional<Tensor> targets) {
  loss(name, spec, prediction, targets);
}

void NetworkBuilder::dice_cross_entropy(const std::string& name, Tensor logits, DiceCrossEntropySpec spec,
                                        std::optional<Tensor> targets) {
  loss(name, spec, logits, targets);
}

void NetworkBuilder::output(Tensor x) {
  type(x);
  if (x.id == network_.input() || std::ranges::find(network_.outputs_, x.id) != network_.outputs_.end()) {
    throw InvalidArgument("network " + network_.name_ + ": '" + network_.names_[x.id] +
                          "' cannot be an output" +
                          (x.id == network_.input() ? ": it is the input" : " twice"));
  }
  network_.outputs_.push_back(x.id);
}

Network NetworkBuilder::build() && {
  std::vector<bool> read(network_.types_.size());
  bool has_loss = false;
  for (const Layer& layer : network_.layers_) {
    for (const std::uint32_t input : layer.inputs) {
      read[input] = true;
    }
    if (is_loss(layer.spec)) {
      has_loss = true;
      read[layer.output] = true;  // the host reads the metrics of a loss
    }
  }
  if (!has_loss) {
    throw InvalidArgument("network " + network_.name_ + " has no loss");
  }
  for (const std::uint32_t output : network_.outputs_) {
    read[output] = true;
  }
  for (std::size_t id = 0; id < read.size(); ++id) {
    if (!read[id]) {
      throw InvalidArgument("network " + network_.name_ + ": nothing reads " +
                            (is_target(static_cast<std::uint32_t>(id)) ? "targets " : "feature map ") +
                            network_.names_[id] + " (" + to_string(network_.types_[id].dims) + ")");
    }
  }
  return std::move(network_);
}

}  // namespace vdnn
