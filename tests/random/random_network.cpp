#include "tests/random/random_network.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "src/base/random.h"
#include "tests/random/product_layer.h"
#include "tests/train/every_layer.h"

namespace vdnn::testing {

namespace {

constexpr std::int64_t kMostElements = 1 << 16;  // of a feature map: four granules of `cpu`
constexpr std::int64_t kMostProducts = 1 << 22;  // multiply-adds of one op
constexpr std::int64_t kMostWeights = 1 << 14;   // of a matrix

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most - least + 1)));
  }
  bool chance(std::int64_t percent) { return between(1, 100) <= percent; }
  template <class Items>
  const auto& one_of(const Items& items) {
    return items[random_.below(std::size(items))];
  }
  std::int64_t channels() { return one_of(std::array<std::int64_t, 9>{1, 2, 3, 3, 4, 6, 8, 16, 17}); }
  std::int64_t divisor(std::int64_t of) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t i = 1; i <= of; ++i) {
      if (of % i == 0) {
        divisors.push_back(i);
      }
    }
    return one_of(divisors);
  }

 private:
  SplitMix64 random_;
};

Dims input_dims(Draws& draws) {
  Dims dims{draws.between(1, 5), draws.channels()};
  static constexpr std::array<std::size_t, 10> kRanks{0, 1, 1, 2, 2, 2, 2, 2, 3, 3};
  static constexpr std::array<std::int64_t, 4> kLargest{0, 1200, 40, 11};
  const std::size_t rank = draws.one_of(kRanks);
  for (std::size_t i = 0; i < rank; ++i) {
    dims.push_back(draws.between(2, kLargest.at(rank)));
  }
  return dims;
}

std::int64_t volume(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// Adds layers to a network one by one. Each kind draws numbers that suit its input, or returns nothing if
// none do.
class Grower {
 public:
  explicit Grower(std::uint64_t seed)
      : seed_(seed), draws_(seed), net_("random-" + std::to_string(seed), input_dims(draws_)) {
    maps_ = {net_.input()};
    unread_ = maps_;
  }

  RandomNetwork finish() && {
    const std::int64_t layers = draws_.between(3, 24);
    for (std::int64_t attempt = 0; layers_ < layers && attempt < 4 * layers; ++attempt) {
      grow();
    }
    end();
    mark_outputs();
    TrainingOptions training = draw_training();
    return {.seed = seed_, .network = std::move(net_).build(), .training = std::move(training)};
  }

 private:
  using Grow = std::optional<Tensor> (Grower::*)(Tensor);

  void grow() {
    static constexpr std::array<Grow, 27> kKinds{&Grower::convolution,
                                                 &Grower::convolution,
                                                 &Grower::convolution,
                                                 &Grower::convolution,
                                                 &Grower::transposed_convolution,
                                                 &Grower::fully_connected,
                                                 &Grower::relu,
                                                 &Grower::relu,
                                                 &Grower::relu,
                                                 &Grower::sigmoid,
                                                 &Grower::pooling,
                                                 &Grower::pooling,
                                                 &Grower::global_pooling,
                                                 &Grower::upsampling,
                                                 &Grower::add,
                                                 &Grower::add,
                                                 &Grower::add,
                                                 &Grower::concatenation,
                                                 &Grower::concatenation,
                                                 &Grower::batch_normalization,
                                                 &Grower::batch_normalization,
                                                 &Grower::group_normalization,
                                                 &Grower::lrn,
                                                 &Grower::dropout,
                                                 &Grower::dropout,
                                                 &Grower::doubling,
                                                 &Grower::product};
    const Grow kind = draws_.one_of(kKinds);
    if (const std::optional<Tensor> y = (this->*kind)(pick())) {
      maps_.push_back(*y);
      unread_.push_back(*y);
    }
  }

  // Mostly the latest feature map, so that chains grow; otherwise any, so that feature maps fork.
  Tensor pick() {
    if (unread_.empty() || draws_.chance(25)) {
      return draws_.one_of(maps_);
    }
    return draws_.chance(70) ? unread_.back() : draws_.one_of(unread_);
  }

  std::string name(const std::string& kind) { return kind + std::to_string(++layers_); }
  Tensor reads(Tensor x) {
    std::erase_if(unread_, [x](Tensor each) { return each.id == x.id; });
    return x;
  }

  const Dims& dims(Tensor x) const { return net_.type(x).dims; }
  std::size_t rank(Tensor x) const { return net_.type(x).spatial_rank(); }
  std::int64_t channels(Tensor x) const { return dims(x)[1]; }

  // --- one function per kind of layer ----------------------------------------------------------------------
  struct Windows {
    Dims kernel;
    Dims stride;
    Dims padding;
    Dims dilation;
    std::int64_t places = 1;  // positions of the window
  };
  // One window per axis. Half of the time the output is as large as the input.
  Windows windows(Tensor x, std::int64_t largest_dilation) {
    const bool same = draws_.chance(50);
    Windows result;
    for (std::size_t axis = 2; axis < dims(x).size(); ++axis) {
      std::int64_t kernel = same ? 2 * draws_.between(0, 1) + 1 : draws_.between(1, 4);
      std::int64_t dilation = draws_.between(1, largest_dilation);
      std::int64_t extent = dilation * (kernel - 1) + 1;
      if (!same && extent > dims(x)[axis]) {
        kernel = extent = std::min<std::int64_t>(kernel, dims(x)[axis]);
        dilation = 1;
      }
      result.kernel.push_back(kernel);
      result.dilation.push_back(dilation);
      result.stride.push_back(same ? 1 : draws_.between(1, 3));
      result.padding.push_back(same ? extent / 2 : draws_.between(0, std::min<std::int64_t>(extent - 1, 2)));
      result.places *= (dims(x)[axis] + 2 * result.padding.back() - extent) / result.stride.back() + 1;
    }
    return result;
  }

  std::optional<Tensor> convolution(Tensor x) {
    if (rank(x) == 0) {
      return std::nullopt;
    }
    Windows window = windows(x, 3);
    const std::int64_t groups = draws_.chance(30) ? draws_.divisor(channels(x)) : 1;
    const std::int64_t filters = groups * (groups > 4 ? draws_.between(1, 2) : draws_.channels());
    const std::int64_t elements = dims(x)[0] * filters * window.places;
    if (elements > kMostElements || elements * volume(window.kernel) * channels(x) / groups > kMostProducts) {
      return std::nullopt;
    }
    const bool dilated = std::ranges::any_of(window.dilation, [](std::int64_t d) { return d > 1; });
    return net_.convolution(name("conv"), reads(x),
                            {.filters = filters,
                             .kernel = std::move(window.kernel),
                             .stride = std::move(window.stride),
                             .padding = std::move(window.padding),
                             .dilation = dilated ? std::move(window.dilation) : Dims{},
                             .groups = groups,
                             .bias = draws_.chance(70)});
  }

  std::optional<Tensor> transposed_convolution(Tensor x) {
    if (rank(x) == 0) {
      return std::nullopt;
    }
    TransposedConvolutionSpec spec{.filters = draws_.channels()};
    std::int64_t places = 1;
    for (std::size_t axis = 2; axis < dims(x).size(); ++axis) {
      spec.kernel.push_back(draws_.between(1, 4));
      spec.stride.push_back(draws_.between(1, 3));
      const std::int64_t whole = (dims(x)[axis] - 1) * spec.stride.back() + spec.kernel.back();
      spec.padding.push_back(draws_.between(0, std::min(spec.kernel.back(), (whole + 1) / 2) - 1));
      places *= whole - 2 * spec.padding.back();
    }
    spec.bias = draws_.chance(70);
    // `cpu` refuses this case, since oneDNN's only kernel for the filter's gradient is wrong.
    const bool refused = rank(x) == 3 && spec.stride[0] > 1 && spec.padding[0] > spec.stride[0];
    if (refused || volume(dims(x)) * spec.filters * volume(spec.kernel) > kMostProducts ||
        dims(x)[0] * spec.filters * places > kMostElements) {
      return std::nullopt;
    }
    return net_.transposed_convolution(name("transposed"), reads(x), std::move(spec));
  }

  std::optional<Tensor> fully_connected(Tensor x) { return matrix(name("fc"), x, draws_.channels()); }

  // Limits the outputs so that the matrix stays small.
  std::int64_t at_most_outputs(Tensor x, std::int64_t outputs) const {
    return std::clamp<std::int64_t>(kMostWeights / (volume(dims(x)) / dims(x)[0]), 1, outputs);
  }
  Tensor matrix(const std::string& called, Tensor x, std::int64_t outputs) {
    return net_.fully_connected(called, reads(x),
                                {.outputs = at_most_outputs(x, outputs), .bias = draws_.chance(70)});
  }

  std::optional<Tensor> relu(Tensor x) {
    return net_.relu(name("relu"), reads(x), draws_.one_of(std::array{0.0F, 0.0F, 0.01F, 0.25F}));
  }
  std::optional<Tensor> sigmoid(Tensor x) { return net_.sigmoid(name("sigmoid"), reads(x)); }
  std::optional<Tensor> dropout(Tensor x) {
    return net_.dropout(name("dropout"), reads(x), draws_.one_of(std::array{0.0F, 0.25F, 0.5F, 0.9F}));
  }
  std::optional<Tensor> doubling(Tensor x) {
    return net_.custom(name("doubling"), {reads(x)}, std::make_shared<Doubling>());
  }

  PoolingMode pooling_mode() { return draws_.chance(50) ? PoolingMode::kMax : PoolingMode::kAverage; }
  std::optional<Tensor> pooling(Tensor x) {
    if (rank(x) == 0) {
      return std::nullopt;
    }
    Windows window = windows(x, 1);
    return net_.pooling(name("pool"), reads(x),
                        {.mode = pooling_mode(),
                         .kernel = std::move(window.kernel),
                         .stride = std::move(window.stride),
                         .padding = std::move(window.padding)});
  }
  std::optional<Tensor> global_pooling(Tensor x) {
    if (rank(x) == 0) {
      return std::nullopt;
    }
    return net_.global_pooling(name("global"), reads(x), pooling_mode());
  }

  std::optional<Tensor> upsampling(Tensor x) {
    UpsamplingSpec spec{.mode = draws_.chance(50) ? UpsamplingMode::kNearest : UpsamplingMode::kLinear};
    for (std::size_t axis = 0; axis < rank(x); ++axis) {
      spec.factors.push_back(draws_.between(1, 3));
    }
    if (rank(x) == 0 || volume(dims(x)) * volume(spec.factors) > kMostElements) {
      return std::nullopt;
    }
    return net_.upsampling(name("up"), reads(x), std::move(spec));
  }

  std::optional<Tensor> batch_normalization(Tensor x) {
    if (volume(dims(x)) == channels(x)) {
      return std::nullopt;
    }
    return net_.batch_normalization(name("bn"), reads(x),
                                    {.momentum = draws_.one_of(std::array{0.1F, 0.5F})});
  }
  std::optional<Tensor> group_normalization(Tensor x) {
    return net_.group_normalization(name("gn"), reads(x), {.groups = draws_.divisor(channels(x))});
  }
  std::optional<Tensor> lrn(Tensor x) {
    if (rank(x) == 0) {
      return std::nullopt;
    }
    return net_.lrn(name("lrn"), reads(x), {.size = 2 * draws_.between(0, 2) + 1, .alpha = 0.01F});
  }

  // --- joins -----------------------------------------------------------------------------------------------
  // All feature maps for which `suits` returns true.
  template <class Suits>
  std::vector<Tensor> partners(const Suits& suits) const {
    std::vector<Tensor> result;
    std::ranges::copy_if(maps_, std::back_inserter(result), suits);
    return result;
  }
  // A feature map of the type of x; usually a different one, if it exists, otherwise x.
  Tensor alike(Tensor x) {
    std::vector<Tensor> found = partners([&](Tensor y) { return net_.type(y) == net_.type(x); });
    if (found.size() > 1 && draws_.chance(85)) {
      std::erase_if(found, [x](Tensor y) { return y.id == x.id; });
    }
    return draws_.one_of(found);
  }

  std::optional<Tensor> add(Tensor x) {
    const Tensor other = alike(x);
    return net_.add(name("add"), reads(x), reads(other));
  }
  // Products of products diverge, so one factor is a gate between 0 and 1.
  std::optional<Tensor> product(Tensor x) {
    const Tensor gate = net_.sigmoid(name("gate"), reads(alike(x)));
    maps_.push_back(gate);
    return net_.custom(name("product"), {reads(x), gate}, make_product());
  }
  std::optional<Tensor> concatenation(Tensor x) {
    const std::vector<Tensor> found = partners([&](Tensor y) {
      return dims(y).size() == dims(x).size() &&
             std::equal(dims(y).begin() + 2, dims(y).end(), dims(x).begin() + 2);
    });
    std::vector<Tensor> inputs{x};
    std::int64_t elements = volume(dims(x));
    for (std::int64_t more = draws_.between(1, 3); more > 0; --more) {
      inputs.push_back(draws_.one_of(found));
      elements += volume(dims(inputs.back()));
    }
    if (elements > kMostElements) {
      return std::nullopt;
    }
    std::ranges::for_each(inputs, [this](Tensor input) { reads(input); });
    return net_.concatenation(name("cat"), inputs);
  }

  // --- ends ------------------------------------------------------------------------------------------------
  // Gives every unread feature map a reader: a loss, the host alone, or a layer that joins two of them.
  void end() {
    while (unread_.size() > 3) {
      join(unread_.front(), unread_.back());
    }
    const std::vector<Tensor> ends = unread_;
    for (std::size_t i = 1; i < ends.size(); ++i) {
      if (draws_.chance(35) && ends[i].id != net_.input().id) {
        net_.output(reads(ends[i]));
        outputs_.push_back(ends[i]);
      } else {
        loss(ends[i]);
      }
    }
    loss(ends.empty() ? maps_.back() : ends[0]);
    if (draws_.chance(20)) {
      loss(draws_.one_of(maps_));
    }
  }

  void join(Tensor a, Tensor b) {
    const std::int64_t outputs = at_most_outputs(a, at_most_outputs(b, 2));
    const Tensor left = matrix(name("narrow"), a, outputs);
    const Tensor right = matrix(name("narrow"), b, outputs);
    maps_.push_back(net_.add(name("join"), left, right));
    unread_.push_back(maps_.back());
  }

  void loss(Tensor x) {
    Tensor prediction = reads(x);
    if (draws_.chance(70)) {
      const std::string head = name("head");
      prediction = matrix(head, x, draws_.between(1, 17));
      learned_.push_back(head + ".filter");
    }
    const float weight = draws_.one_of(std::array{1.0F, 0.5F, 0.25F});
    switch (draws_.between(0, 2)) {
      case 0:
        return net_.softmax_cross_entropy(name("softmax"), prediction, {.weight = weight},
                                          targets(class_targets(prediction)));
      case 1:
        return net_.dice_cross_entropy(name("dice"), prediction, {.weight = weight},
                                       targets(class_targets(prediction)));
      default:
        return net_.mean_squared_error(name("error"), prediction, {.weight = weight},
                                       targets(net_.type(prediction)));
    }
  }

  TensorType class_targets(Tensor logits) const {
    TensorType type{.data_type = DataType::kI32, .dims = dims(logits)};
    type.dims.erase(type.dims.begin() + 1);
    return type;
  }

  // Usually the targets that losses share, if their type fits; otherwise targets of the loss's own.
  std::optional<Tensor> targets(const TensorType& type) {
    if ((!shared_targets_ || *shared_targets_ == type) && draws_.chance(60)) {
      shared_targets_ = type;
      return std::nullopt;
    }
    return net_.target(name("wanted"), type);
  }

  void mark_outputs() {
    for (std::int64_t more = draws_.between(0, 2); more > 0; --more) {
      const Tensor x = draws_.one_of(maps_);
      if (x.id != net_.input().id &&
          std::ranges::none_of(outputs_, [x](Tensor marked) { return marked.id == x.id; })) {
        net_.output(x);
        outputs_.push_back(x);
      }
    }
  }

  TrainingOptions draw_training() {
    TrainingOptions training;
    const float decay = draws_.one_of(std::array{0.0F, 0.001F});
    switch (draws_.between(0, 3)) {
      case 0:
        training.optimizer = SgdSpec{.weight_decay = decay};
        break;
      case 1:
        training.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = decay};
        break;
      case 2:
        training.optimizer = AdamSpec{.weight_decay = decay};
        break;
      default:
        training.optimizer = AdamSpec{.weight_decay = decay, .decoupled = true};
    }
    if (draws_.chance(30)) {
      training.clip_norm = draws_.one_of(std::array{0.1F, 10.0F});
    }
    if (!learned_.empty() && draws_.chance(30)) {
      training.results.push_back(draws_.one_of(learned_) + ".gradient");
    }
    training.precision = draw_precision();
    return training;
  }

  PrecisionOptions draw_precision() {
    PrecisionOptions precision;
    if (draws_.chance(40)) {
      precision.storage = draws_.one_of(std::array{DataType::kBf16, DataType::kF16});
      if (!learned_.empty() && draws_.chance(50)) {
        const std::string& parameter = draws_.one_of(learned_);
        precision.fp32_layers.push_back(parameter.substr(0, parameter.find('.')));
      }
    }
    return precision;
  }

  std::uint64_t seed_;
  Draws draws_;
  NetworkBuilder net_;
  std::int64_t layers_ = 0;
  std::vector<Tensor> maps_;    // every feature map
  std::vector<Tensor> unread_;  // feature maps without a reader so far
  std::vector<Tensor> outputs_;
  std::optional<TensorType> shared_targets_;
  std::vector<std::string> learned_;  // parameters that have a gradient, whatever layers follow
};

// --- descriptions ------------------------------------------------------------------------------------------

std::string number(float value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + "0" : text;
}

// The numbers of a layer or an optimizer, as text.
struct InWords {
  std::string operator()(const ConvolutionSpec& s) const {
    return "convolution, " + windows(s.filters, s.kernel, s.stride, s.padding) +
           (s.dilation.empty() ? "" : ", dilation " + to_string(s.dilation)) + ", groups " +
           std::to_string(s.groups) + bias(s.bias);
  }
  std::string operator()(const TransposedConvolutionSpec& s) const {
    return "transposed convolution, " + windows(s.filters, s.kernel, s.stride, s.padding) + bias(s.bias);
  }
  std::string operator()(const FullyConnectedSpec& s) const {
    return "fully connected, " + std::to_string(s.outputs) + " outputs" + bias(s.bias);
  }
  std::string operator()(const ReluSpec& s) const {
    return "rectifier, negative slope " + number(s.negative_slope);
  }
  std::string operator()(const SigmoidSpec&) const { return "sigmoid"; }
  std::string operator()(const PoolingSpec& s) const {
    return std::string(s.mode == PoolingMode::kMax ? "max" : "average") + " pooling, kernel " +
           to_string(s.kernel) + ", stride " + to_string(s.stride) + ", padding " + to_string(s.padding);
  }
  std::string operator()(const UpsamplingSpec& s) const {
    return std::string(s.mode == UpsamplingMode::kNearest ? "nearest" : "linear") + " upsampling by " +
           to_string(s.factors);
  }
  std::string operator()(const AddSpec&) const { return "addition"; }
  std::string operator()(const ConcatenationSpec&) const { return "concatenation"; }
  std::string operator()(const BatchNormalizationSpec& s) const {
    return "batch normalisation, momentum " + number(s.momentum);
  }
  std::string operator()(const GroupNormalizationSpec& s) const {
    return "group normalisation, " + std::to_string(s.groups) + " groups";
  }
  std::string operator()(const LrnSpec& s) const {
    return "local response normalisation over " + std::to_string(s.size);
  }
  std::string operator()(const DropoutSpec& s) const { return "dropout of " + number(s.probability); }
  std::string operator()(const ConversionSpec& s) const {
    return std::string("conversion to ") + to_string(s.to);
  }
  std::string operator()(const SoftmaxCrossEntropySpec& s) const {
    return "softmax cross-entropy, weight " + number(s.weight);
  }
  std::string operator()(const MeanSquaredErrorSpec& s) const {
    return "mean squared error, weight " + number(s.weight);
  }
  std::string operator()(const DiceCrossEntropySpec& s) const {
    return "dice and cross-entropy, weight " + number(s.weight);
  }
  std::string operator()(const CustomSpec& s) const { return "custom, " + s.layer->kind(); }
  std::string operator()(const SgdSpec& s) const {
    return "sgd, momentum " + number(s.momentum) + ", weight decay " + number(s.weight_decay);
  }
  std::string operator()(const AdamSpec& s) const {
    return std::string(s.decoupled ? "adamw" : "adam") + ", weight decay " + number(s.weight_decay);
  }
  std::string operator()(const GradientNormSpec& s) const {
    return ", gradients clipped to " + number(s.max_norm);
  }
  std::string operator()(const GradientSumSpec&) const { return ", gradients accumulated"; }
  std::string operator()(const GradientScalingSpec&) const { return ", gradients scaled"; }
  std::string operator()(const LossScaleUpdateSpec&) const { return ", loss scale adapted"; }
  std::string operator()(const AllReduceSpec&) const { return ", gradients summed over ranks"; }

 private:
  static std::string windows(std::int64_t filters, const Dims& kernel, const Dims& stride,
                             const Dims& padding) {
    return std::to_string(filters) + " filters, kernel " + to_string(kernel) + ", stride " +
           to_string(stride) + ", padding " + to_string(padding);
  }
  static std::string bias(bool bias) { return bias ? "" : ", no bias"; }
};

// --- batches -----------------------------------------------------------------------------------------------

template <class Number, class Draw>
std::vector<std::byte> drawn(const TensorType& type, const Draw& draw) {
  std::vector<Number> numbers(type.elements());
  std::ranges::generate(numbers, draw);
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

// The number of classes that all losses over these targets have.
std::int64_t classes_of(const Network& network, std::uint32_t target) {
  std::int64_t classes = std::numeric_limits<std::int64_t>::max();
  for (const Layer& layer : network.layers()) {
    if (is_loss(layer.spec) && layer.inputs[1] == target) {
      classes = std::min(classes, network.type(layer.inputs[0]).dims[1]);
    }
  }
  return classes;
}

}  // namespace

RandomNetwork make_random_network(std::uint64_t seed) {
  return Grower(seed).finish();
}

std::string describe(const RandomNetwork& random) {
  const Network& network = random.network;
  std::string text = network.name() + ": images " + to_string(network.type(network.input()).dims) + "; " +
                     std::visit(InWords(), random.training.optimizer);
  if (random.training.clip_norm) {
    text += InWords()(GradientNormSpec{.max_norm = *random.training.clip_norm});
  }
  if (is_narrow(random.training.precision.storage)) {
    text += std::string(", ") + to_string(random.training.precision.storage);
    for (const std::string& layer : random.training.precision.fp32_layers) {
      text += " but for " + layer;
    }
  }
  for (const Layer& layer : network.layers()) {
    text += "\n  " + layer.name + " = " + std::visit(InWords(), layer.spec) + "; of";
    for (const std::uint32_t input : layer.inputs) {
      text += " " + network.feature_map_name(input);
    }
    text += " -> " + to_string(network.type(layer.output).dims);
  }
  text += "\n  given back:";
  for (const std::uint32_t output : network.outputs()) {
    text += " " + network.feature_map_name(output);
  }
  for (const std::string& result : random.training.results) {
    text += " " + result;
  }
  return text;
}

std::vector<std::vector<std::byte>> random_batch(const Network& network, std::uint64_t seed) {
  SplitMix64 random(seed);
  const auto real = [&random] { return random.symmetric(); };
  std::vector<std::vector<std::byte>> batch{drawn<float>(network.type(network.input()), real)};
  for (const std::uint32_t target : network.targets()) {
    const TensorType& type = network.type(target);
    if (type.data_type == DataType::kF32) {
      batch.push_back(drawn<float>(type, real));
      continue;
    }
    const auto places = static_cast<std::uint64_t>(classes_of(network, target)) + 1;
    batch.push_back(drawn<std::int32_t>(
        type, [&random, places] { return static_cast<std::int32_t>(random.below(places)) - 1; }));
  }
  return batch;
}

}  // namespace vdnn::testing
