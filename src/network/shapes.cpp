#include "src/network/shapes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "src/tape/window.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

std::string describe(const NamedType& operand) {
  return "'" + operand.name + "' (" + to_string(operand.type.dims) + ")";
}

// Checks the inputs of one layer and computes its output's type. Has the names and shapes for messages.
class ShapeRules {
 public:
  ShapeRules(const std::string& layer, std::span<const NamedType> inputs) : layer_(layer), inputs_(inputs) {}

  TensorType operator()(const ConvolutionSpec& spec) const {
    const TensorType& x = only_input();
    const Window window{spec.kernel, spec.stride, spec.padding, spec.dilation};
    check_window(window);
    require(spec.filters > 0, std::to_string(spec.filters) + " filters for input " + describe(inputs_[0]));
    require(spec.groups > 0 && channels(x) % spec.groups == 0 && spec.filters % spec.groups == 0,
            std::to_string(spec.groups) + " groups must divide " + std::to_string(channels(x)) +
                " channels and " + std::to_string(spec.filters) + " filters");
    check_size("filter", joined(spec.filters, channels(x) / spec.groups, spec.kernel));
    return feature_map(x, spec.filters, window_output(window));
  }

  TensorType operator()(const TransposedConvolutionSpec& spec) const {
    const TensorType& x = only_input();
    const Window window{spec.kernel, spec.stride, spec.padding, {}};
    check_window(window);
    require(spec.filters > 0, std::to_string(spec.filters) + " filters for input " + describe(inputs_[0]));
    check_size("filter", joined(spec.filters, channels(x), spec.kernel));
    Dims space;
    for (std::size_t i = 0; i < spec.kernel.size(); ++i) {
      std::int64_t extent = 0;
      require(!__builtin_mul_overflow(x.dims[2 + i] - 1, spec.stride[i], &extent) &&
                  !__builtin_add_overflow(extent, spec.kernel[i], &extent),
              "the output overflows 64 bits; " + numbers(window));
      require(extent > 2 * spec.padding[i], "the padding leaves no output; " + numbers(window));
      space.push_back(extent - 2 * spec.padding[i]);
    }
    return feature_map(x, spec.filters, space);
  }

  TensorType operator()(const FullyConnectedSpec& spec) const {
    const TensorType& x = only_input();
    require(spec.outputs > 0, std::to_string(spec.outputs) + " outputs for input " + describe(inputs_[0]));
    Dims weights = x.dims;
    weights[0] = spec.outputs;
    check_size("weights", weights);
    return feature_map(x, spec.outputs, {});
  }

  TensorType operator()(const ReluSpec& spec) const {
    require(std::isfinite(spec.negative_slope) && spec.negative_slope >= 0,
            "negative slope " + std::to_string(spec.negative_slope) + " must be 0 or more");
    return only_input();
  }

  TensorType operator()(const SigmoidSpec&) const { return only_input(); }

  TensorType operator()(const PoolingSpec& spec) const {
    const TensorType& x = only_input();
    const Window window{spec.kernel, spec.stride, spec.padding, {}};
    check_window(window);
    return feature_map(x, channels(x), window_output(window));
  }

  TensorType operator()(const UpsamplingSpec& spec) const {
    const TensorType& x = only_input();
    const std::size_t rank = require_space(x);
    require(spec.factors.size() == rank && std::ranges::all_of(spec.factors, [](auto f) { return f > 0; }),
            "factors " + to_string(spec.factors) + " must be positive, one for each of the " +
                std::to_string(rank) + " spatial dimensions of " + describe(inputs_[0]));
    TensorType y = x;
    for (std::size_t i = 0; i < rank; ++i) {
      require(!__builtin_mul_overflow(x.dims[2 + i], spec.factors[i], &y.dims[2 + i]),
              "the output overflows 64 bits; input " + describe(inputs_[0]));
    }
    return y;
  }

  TensorType operator()(const AddSpec&) const {
    require_inputs(2);
    require(inputs_[0].type == inputs_[1].type,
            "inputs " + describe(inputs_[0]) + " and " + describe(inputs_[1]) + " differ");
    return inputs_[0].type;
  }

  TensorType operator()(const ConcatenationSpec&) const {
    require(inputs_.size() >= 2, "concatenates two inputs or more, got " + std::to_string(inputs_.size()));
    TensorType y = inputs_[0].type;
    require(y.dims.size() >= 2, "input " + describe(inputs_[0]) + " has no channels");
    for (const NamedType& input : inputs_.subspan(1)) {
      TensorType alike = input.type;
      require(alike.dims.size() == y.dims.size(), "inputs " + describe(inputs_[0]) + " and " +
                                                      describe(input) +
                                                      " differ in more than their channels");
      const std::int64_t more = alike.dims[1];
      alike.dims[1] = y.dims[1];
      require(alike == y, "inputs " + describe(inputs_[0]) + " and " + describe(input) +
                              " differ in more than their channels");
      require(!__builtin_add_overflow(y.dims[1], more, &y.dims[1]), "the channels overflow 64 bits");
    }
    return y;
  }

  TensorType operator()(const BatchNormalizationSpec& spec) const {
    require_positive("epsilon", spec.epsilon);
    require(spec.momentum >= 0 && spec.momentum <= 1,
            "momentum " + std::to_string(spec.momentum) + " must be between 0 and 1");
    const TensorType& x = only_input();
    // The running variance divides by n - 1, where n is the number of elements per channel.
    require(x.elements() / static_cast<std::uint64_t>(channels(x)) > 1,
            "one element per channel has no variance; input " + describe(inputs_[0]));
    return x;
  }

  TensorType operator()(const GroupNormalizationSpec& spec) const {
    require_positive("epsilon", spec.epsilon);
    const TensorType& x = only_input();
    require(spec.groups > 0 && channels(x) % spec.groups == 0,
            std::to_string(spec.groups) + " groups must divide the channels of " + describe(inputs_[0]));
    return x;
  }

  TensorType operator()(const LrnSpec& spec) const {
    require(spec.size > 0 && spec.size % 2 == 1, "size " + std::to_string(spec.size) + " must be odd");
    require_positive("k", spec.k);
    require(std::isfinite(spec.alpha) && spec.alpha >= 0 && std::isfinite(spec.beta),
            "alpha " + std::to_string(spec.alpha) + " and beta " + std::to_string(spec.beta) +
                " must be finite, alpha not negative");
    const TensorType& x = only_input();
    require_space(x);
    return x;
  }

  TensorType operator()(const DropoutSpec& spec) const {
    require(spec.probability >= 0 && spec.probability < 1,
            "probability " + std::to_string(spec.probability) + " must be at least 0 and less than 1");
    return only_input();
  }

  TensorType operator()(const ConversionSpec& spec) const {
    TensorType y = only_input();
    require(is_floating(y.data_type) && is_floating(spec.to),
            std::string("converts only floating-point numbers, not ") + to_string(y.data_type) + " to " +
                to_string(spec.to));
    y.data_type = spec.to;
    return y;
  }

  TensorType operator()(const SoftmaxCrossEntropySpec& spec) const { return loss(spec, spec.weight); }
  TensorType operator()(const MeanSquaredErrorSpec& spec) const { return loss(spec, spec.weight); }
  TensorType operator()(const DiceCrossEntropySpec& spec) const {
    require_positive("smooth", spec.smooth);
    return loss(spec, spec.weight);
  }

  TensorType operator()(const CustomSpec& spec) const {
    require(spec.layer != nullptr, "no custom layer given");
    require(!inputs_.empty(), "a custom layer without an input");
    std::vector<TensorType> types;
    for (const NamedType& input : inputs_) {
      types.push_back(input.type);
    }
    try {
      TensorType output = spec.layer->output(types);
      require(!output.dims.empty() && output.dims[0] == types[0].dims[0],
              "output " + to_string(output.dims) + " must begin with the batch");
      return output;
    } catch (const InvalidArgument& error) {
      reject(spec.layer->kind() + ": " + error.what());
    }
  }

  TensorType operator()(const SgdSpec&) const { not_a_layer(); }
  TensorType operator()(const AdamSpec&) const { not_a_layer(); }
  TensorType operator()(const GradientNormSpec&) const { not_a_layer(); }
  TensorType operator()(const GradientSumSpec&) const { not_a_layer(); }
  TensorType operator()(const GradientScalingSpec&) const { not_a_layer(); }
  TensorType operator()(const LossScaleUpdateSpec&) const { not_a_layer(); }
  TensorType operator()(const AllReduceSpec&) const { not_a_layer(); }

  // The targets of logits N x K x space...: one class per sample and point of space.
  TensorType class_targets() const {
    const TensorType& logits = inputs_[0].type;
    require(logits.dims.size() >= 2, "logits " + describe(inputs_[0]) + " must be N x K x space");
    TensorType targets{.data_type = DataType::kI32, .dims = logits.dims};
    targets.dims.erase(targets.dims.begin() + 1);
    return targets;
  }

  [[noreturn]] void reject(const std::string& why) const {
    throw InvalidArgument("layer " + layer_ + ": " + why);
  }

 private:
  void require(bool condition, const std::string& why) const {
    if (!condition) {
      reject(why);
    }
  }
  void require_positive(const char* what, float value) const {
    require(std::isfinite(value) && value > 0,
            std::string(what) + " " + std::to_string(value) + " must be positive");
  }
  void require_inputs(std::size_t count) const {
    require(inputs_.size() == count,
            "takes " + std::to_string(count) + " inputs, got " + std::to_string(inputs_.size()));
  }
  [[noreturn]] void not_a_layer() const { reject("an optimizer's op is not a layer"); }

  const TensorType& only_input() const {
    require_inputs(1);
    require(inputs_[0].type.dims.size() >= 2, "input " + describe(inputs_[0]) + " has no channels");
    return inputs_[0].type;
  }
  static std::int64_t channels(const TensorType& x) { return x.dims[1]; }

  std::size_t require_space(const TensorType& x) const {
    require(x.spatial_rank() > 0, "the input " + describe(inputs_[0]) + " has no spatial dimensions");
    return x.spatial_rank();
  }

  std::string numbers(const Window& window) const {
    return "input " + describe(inputs_[0]) + ", kernel " + to_string(window.kernel) + ", stride " +
           to_string(window.stride) + ", padding " + to_string(window.padding) +
           (window.dilation.empty() ? "" : ", dilation " + to_string(window.dilation));
  }

  void check_window(const Window& window) const {
    const TensorType& x = only_input();
    const std::size_t rank = require_space(x);
    require(window.kernel.size() == rank && window.stride.size() == rank && window.padding.size() == rank &&
                (window.dilation.empty() || window.dilation.size() == rank),
            "kernel, stride, padding and dilation need one entry for each of the " + std::to_string(rank) +
                " spatial dimensions; " + numbers(window));
    const auto positive = [](std::int64_t value) { return value > 0; };
    const auto not_negative = [](std::int64_t value) { return value >= 0; };
    require(std::ranges::all_of(window.kernel, positive) && std::ranges::all_of(window.stride, positive) &&
                std::ranges::all_of(window.dilation, positive) &&
                std::ranges::all_of(window.padding, not_negative),
            "kernel, stride and dilation must be positive, padding must not be negative; " + numbers(window));
    for (std::size_t i = 0; i < rank; ++i) {
      require(window.axis(i).reaches_input(),
              "padding must be less than the kernel's extent, dilation (kernel - 1) + 1; " + numbers(window));
    }
  }

  // The extents of the output. Requires a window that check_window() accepts.
  Dims window_output(const Window& window) const {
    const TensorType& x = inputs_[0].type;
    Dims output;
    for (std::size_t i = 0; i < window.kernel.size(); ++i) {
      const std::optional<std::int64_t> places = window.axis(i).places(x.dims[2 + i]);
      require(places.has_value(), "the kernel is larger than the padded input; " + numbers(window));
      output.push_back(*places);
    }
    return output;
  }

  static Dims joined(std::int64_t first, std::int64_t second, const Dims& space) {
    Dims dims{first, second};
    dims.insert(dims.end(), space.begin(), space.end());
    return dims;
  }

  // The type of a feature map with the batch and the data type of `x`.
  static TensorType feature_map(const TensorType& x, std::int64_t channels, const Dims& space) {
    return {.data_type = x.data_type, .dims = joined(x.dims[0], channels, space), .layout = x.layout};
  }

  // Rejects a parameter of shape `dims` whose size overflows. Messages name the parameter by `what`.
  void check_size(const std::string& what, const Dims& dims) const {
    try {
      TensorType{.dims = dims}.bytes();
    } catch (const InvalidArgument& error) {
      reject(what + " " + to_string(dims) + ": " + error.what());
    }
  }

  TensorType loss(const OpSpec& spec, float weight) const {
    require(std::isfinite(weight) && weight > 0, "weight " + std::to_string(weight) + " must be positive");
    require_inputs(2);
    const TensorType wanted = target_type(layer_, spec, inputs_[0]);
    require(inputs_[1].type == wanted,
            "prediction " + describe(inputs_[0]) + " needs targets " + to_string(wanted.dims) +
                (wanted.data_type == DataType::kI32 ? " (i32)" : " (f32)") + ", not " + describe(inputs_[1]));
    return {.dims = {kMetricsFloats}};
  }

  const std::string& layer_;
  std::span<const NamedType> inputs_;
};

}  // namespace

TensorType infer_output(const std::string& layer, const OpSpec& spec, std::span<const NamedType> inputs) {
  const ShapeRules rules(layer, inputs);
  TensorType output = std::visit(rules, spec);
  try {
    output.bytes();
  } catch (const InvalidArgument& error) {
    rules.reject("output " + to_string(output.dims) + ": " + error.what());
  }
  return output;
}

TensorType target_type(const std::string& layer, const OpSpec& loss, const NamedType& prediction) {
  if (std::holds_alternative<MeanSquaredErrorSpec>(loss)) {
    return prediction.type;
  }
  return ShapeRules(layer, {&prediction, 1}).class_targets();
}

}  // namespace vdnn
