#pragma once
// One network with every kind of layer, in two or three spatial dimensions, including a custom layer and two
// losses. A test of this network covers all kinds of layers.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "vdnn/custom_layer.h"
#include "vdnn/network.h"

namespace vdnn::testing {

// y = 2 x, with one op per pass. On request accesses an address `stray_bytes` past the end of its output.
class Doubling final : public CustomLayer {
 public:
  explicit Doubling(std::uint64_t stray_bytes = 0) : stray_bytes_(stray_bytes) {}

  std::string kind() const override { return "doubling"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override {
    using enum OperandRole;
    const auto elements = static_cast<double>(question.output.elements());
    const std::vector<Algorithm> only{{.name = "plain"}};
    LayerRecipe recipe;
    recipe.forward = {{.direction = Direction::kForward,
                       .reads = {{kInput, 0}},
                       .writes = {{kOutput, 0}},
                       .may_overwrite = {},
                       .algorithms = only,
                       .cost = {.flops = elements, .bytes = 8 * elements}}};
    if (question.mode == Mode::kTraining) {
      recipe.backward = {{.direction = Direction::kBackwardData,
                          .reads = {{kOutputGradient, 0}},
                          .writes = {{kInputGradient, 0}},
                          .may_overwrite = {},
                          .algorithms = only,
                          .cost = {.flops = elements, .bytes = 8 * elements}}};
    }
    return recipe;
  }
  void run(const CustomLaunch& launch) const override {
    const AddressRange& from = launch.operands.reads[0];
    const AddressRange& to = launch.operands.writes[0];
    for (std::size_t i = 0; i < from.bytes / sizeof(float); ++i) {
      pointer_to<float>(to.begin)[i] = 2 * pointer_to<const float>(from.begin)[i];
    }
    if (stray_bytes_ > 0) {
      pointer_to<volatile char>(to.begin)[to.bytes + stray_bytes_] = 1;
    }
  }

 private:
  std::uint64_t stray_bytes_;
};

// `input` is N, C, and then even extents of at least 8.
inline Network every_layer_network(const Dims& input) {
  NetworkBuilder net("every-layer", input);
  const std::size_t rank = input.size() - 2;
  const auto all = [rank](std::int64_t value) { return Dims(rank, value); };
  const auto convolution = [&](std::int64_t filters, std::int64_t extent) {
    return ConvolutionSpec{
        .filters = filters, .kernel = all(extent), .stride = all(1), .padding = all(extent / 2)};
  };
  const PoolingSpec halving{.mode = PoolingMode::kMax, .kernel = all(2), .stride = all(2), .padding = all(0)};

  Tensor x = net.convolution("conv", net.input(), convolution(8, 3));
  x = net.relu("relu", net.batch_normalization("bn", x));
  const Tensor skip = x;
  x = net.lrn("lrn", net.pooling("pool", x, halving));
  ConvolutionSpec depthwise = convolution(8, 3);
  depthwise.groups = 8;
  depthwise.bias = false;
  x = net.relu("leaky",
               net.group_normalization("gn", net.convolution("depthwise", x, depthwise), {.groups = 2}),
               0.01F);
  ConvolutionSpec dilated = convolution(8, 3);
  dilated.dilation = all(2);
  dilated.padding = all(2);
  x = net.add("add", x, net.instance_normalization("in", net.convolution("dilated", x, dilated)));
  x = net.custom("doubling", {x}, std::make_shared<Doubling>());
  const Tensor up = net.upsampling("up", x, {.mode = UpsamplingMode::kLinear, .factors = all(2)});
  const Tensor near = net.upsampling("near", x, {.mode = UpsamplingMode::kNearest, .factors = all(2)});
  const Tensor transposed = net.transposed_convolution(
      "transposed", x, {.filters = 4, .kernel = all(2), .stride = all(2), .padding = all(0)});
  x = net.concatenation("cat", {skip, up, near, transposed});
  x = net.sigmoid("sigmoid", net.dropout("drop", x, 0.25F));
  net.output(x);
  const Tensor places = net.convolution("places", x, convolution(3, 1));
  net.dice_cross_entropy("dice", places);
  const Tensor pooled = net.global_pooling(
      "global",
      net.pooling("average", x,
                  {.mode = PoolingMode::kAverage, .kernel = all(2), .stride = all(2), .padding = all(1)}),
      PoolingMode::kAverage);
  const Tensor guess = net.fully_connected("guess", pooled, {.outputs = 2});
  net.mean_squared_error("error", guess, {.weight = 0.5F}, net.target("wanted", {.dims = {input[0], 2}}));
  const Tensor classes = net.fully_connected("fc", pooled, {.outputs = 4, .bias = false});
  net.softmax_cross_entropy("class", classes, {.weight = 0.25F},
                            net.target("class_targets", {.data_type = DataType::kI32, .dims = {input[0]}}));
  return std::move(net).build();
}

}  // namespace vdnn::testing
