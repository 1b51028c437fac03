#include "vdnn/network.h"

#include <algorithm>

#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr std::uint32_t kTargets = 1;

[[noreturn]] void reject(const std::string& layer, const std::string& why) {
  throw InvalidArgument("layer " + layer + ": " + why);
}

// Both the elements and the bytes of a tensor fit into 64 bits, and it has some.
void check_size(const std::string& layer, const std::string& what, const TensorType& type) {
  try {
    type.bytes();
  } catch (const InvalidArgument& error) {
    reject(layer, what + " " + to_string(type.dims) + ": " + error.what());
  }
}

std::string describe(const TensorType& input, const Dims& kernel, const Dims& stride, const Dims& padding) {
  return "input " + to_string(input.dims) + ", kernel " + to_string(kernel) + ", stride " +
         to_string(stride) + ", padding " + to_string(padding);
}

void check_window(const std::string& layer, const TensorType& input, const Dims& kernel, const Dims& stride,
                  const Dims& padding) {
  const std::size_t rank = input.spatial_rank();
  const std::string numbers = describe(input, kernel, stride, padding);
  if (rank == 0) {
    reject(layer, "the input has no dimensions of space; " + numbers);
  }
  if (kernel.size() != rank || stride.size() != rank || padding.size() != rank) {
    reject(layer, "kernel, stride and padding need one entry for each of the " + std::to_string(rank) +
                      " dimensions of space; " + numbers);
  }
  const auto positive = [](std::int64_t value) { return value > 0; };
  const auto not_negative = [](std::int64_t value) { return value >= 0; };
  if (!std::ranges::all_of(kernel, positive) || !std::ranges::all_of(stride, positive) ||
      !std::ranges::all_of(padding, not_negative)) {
    reject(layer, "kernel and stride must be positive, padding must not be negative; " + numbers);
  }
}

// Output extents of a sliding window that check_window accepted.
Dims window_output(const std::string& layer, const TensorType& input, const Dims& kernel, const Dims& stride,
                   const Dims& padding) {
  Dims output;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    std::int64_t padded = 0;
    if (__builtin_add_overflow(padding[i], padding[i], &padded) ||
        __builtin_add_overflow(padded, input.dims[2 + i], &padded)) {
      reject(layer, "the padded input overflows 64 bits; " + describe(input, kernel, stride, padding));
    }
    if (padded < kernel[i]) {
      reject(layer,
             "the kernel is larger than the padded input; " + describe(input, kernel, stride, padding));
    }
    output.push_back((padded - kernel[i]) / stride[i] + 1);
  }
  return output;
}

// N x `channels` x `space`.
TensorType feature_map(std::int64_t batch, std::int64_t channels, const Dims& space) {
  TensorType type{.dims = {batch, channels}};
  type.dims.insert(type.dims.end(), space.begin(), space.end());
  return type;
}

// The type of an operand of `layer`.
const TensorType& operand(const NetworkBuilder& net, const std::string& layer, Tensor x) {
  try {
    return net.type(x);
  } catch (const InvalidArgument& error) {
    reject(layer, error.what());
  }
}

// `outputs` x everything of the input but its batch.
TensorType weights_of(std::int64_t outputs, const TensorType& input) {
  TensorType type{.dims = input.dims};
  type.dims[0] = outputs;
  return type;
}

}  // namespace

std::int64_t Network::classes() const {
  return types_[layers_.back().inputs[0]].dims[1];
}

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
  TensorType targets{.data_type = DataType::kI32, .dims = {images.dims[0]}};
  network_.types_ = {std::move(images), std::move(targets)};
  network_.names_ = {"images", "targets"};
}

const TensorType& NetworkBuilder::type(Tensor x) const {
  if (x.id >= network_.types_.size() || x.id == kTargets) {
    throw InvalidArgument("network " + network_.name_ + ": no feature map " + std::to_string(x.id));
  }
  return network_.types_[x.id];
}

Tensor NetworkBuilder::append(const std::string& name, OpSpec spec, std::vector<std::uint32_t> inputs,
                              TensorType output) {
  // Names of values and ops append to a layer's name behind a dot.
  if (name.empty() || name.find('.') != std::string::npos) {
    reject("'" + name + "'", "a name must not be empty nor contain a dot");
  }
  if (std::ranges::any_of(network_.layers_, [&](const Layer& layer) { return layer.name == name; })) {
    reject(name, "the name is taken");
  }
  if (has_loss_) {
    reject(name, "comes after the loss, which ends a network");
  }
  check_size(name, "output", output);
  const auto id = static_cast<std::uint32_t>(network_.types_.size());
  has_loss_ = std::holds_alternative<SoftmaxCrossEntropySpec>(spec);
  network_.names_.push_back(has_loss_ ? "metrics" : name + ".y");
  network_.types_.push_back(std::move(output));
  network_.layers_.push_back({name, std::move(spec), std::move(inputs), id});
  return {id};
}

Tensor NetworkBuilder::convolution(const std::string& name, Tensor x, ConvolutionSpec spec) {
  const TensorType& input = operand(*this, name, x);
  check_window(name, input, spec.kernel, spec.stride, spec.padding);
  if (spec.filters <= 0) {
    reject(name, std::to_string(spec.filters) + " filters for input " + to_string(input.dims));
  }
  check_size(name, "filter", feature_map(spec.filters, input.dims[1], spec.kernel));
  TensorType output = feature_map(input.dims[0], spec.filters,
                                  window_output(name, input, spec.kernel, spec.stride, spec.padding));
  return append(name, std::move(spec), {x.id}, std::move(output));
}

Tensor NetworkBuilder::fully_connected(const std::string& name, Tensor x, FullyConnectedSpec spec) {
  const TensorType& input = operand(*this, name, x);
  if (spec.outputs <= 0) {
    reject(name, std::to_string(spec.outputs) + " outputs for input " + to_string(input.dims));
  }
  check_size(name, "weights", weights_of(spec.outputs, input));
  return append(name, spec, {x.id}, feature_map(input.dims[0], spec.outputs, {}));
}

Tensor NetworkBuilder::relu(const std::string& name, Tensor x) {
  return append(name, ReluSpec{}, {x.id}, operand(*this, name, x));
}

Tensor NetworkBuilder::pooling(const std::string& name, Tensor x, PoolingSpec spec) {
  const TensorType& input = operand(*this, name, x);
  check_window(name, input, spec.kernel, spec.stride, spec.padding);
  // Otherwise a window may hold nothing but padding: no largest element, an average over none.
  for (std::size_t i = 0; i < spec.kernel.size(); ++i) {
    if (spec.padding[i] >= spec.kernel[i]) {
      reject(name, "padding must be less than the kernel; " +
                       describe(input, spec.kernel, spec.stride, spec.padding));
    }
  }
  TensorType output = feature_map(input.dims[0], input.dims[1],
                                  window_output(name, input, spec.kernel, spec.stride, spec.padding));
  return append(name, std::move(spec), {x.id}, std::move(output));
}

Tensor NetworkBuilder::add(const std::string& name, Tensor a, Tensor b) {
  const TensorType& left = operand(*this, name, a);
  const TensorType& right = operand(*this, name, b);
  if (left != right) {
    reject(name, "inputs " + to_string(left.dims) + " and " + to_string(right.dims) + " differ");
  }
  return append(name, AddSpec{}, {a.id, b.id}, left);
}

void NetworkBuilder::softmax_cross_entropy(const std::string& name, Tensor logits) {
  const TensorType& input = operand(*this, name, logits);
  if (input.dims.size() != 2) {
    reject(name, "logits " + to_string(input.dims) + " must be N x K");
  }
  append(name, SoftmaxCrossEntropySpec{}, {logits.id, kTargets}, TensorType{.dims = {2}});
}

Network NetworkBuilder::build() && {
  if (!has_loss_) {
    throw InvalidArgument("network " + network_.name_ + " has no loss");
  }
  std::vector<bool> read(network_.types_.size());
  for (const Layer& layer : network_.layers_) {
    for (const std::uint32_t input : layer.inputs) {
      read[input] = true;
    }
  }
  read[network_.layers_.back().output] = true;  // the metrics, by the host
  for (std::size_t id = 0; id < read.size(); ++id) {
    if (!read[id]) {
      throw InvalidArgument("network " + network_.name_ + ": nobody reads feature map " +
                            network_.names_[id] + " (" + to_string(network_.types_[id].dims) + ")");
    }
  }
  return std::move(network_);
}

}  // namespace vdnn
