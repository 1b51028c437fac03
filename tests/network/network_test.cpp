#include "vdnn/network.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn::network_test {
namespace {

ConvolutionSpec same_convolution(std::int64_t filters) {
  return {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
}

PoolingSpec halving() {
  return {PoolingMode::kMax, {2, 2}, {2, 2}, {0, 0}};
}

TEST(NetworkBuilder, KnowsEveryShape) {
  NetworkBuilder net("shapes", {8, 3, 32, 24});
  EXPECT_EQ(net.type(net.input()), (TensorType{.dims = {8, 3, 32, 24}}));
  const Tensor strided = net.convolution(
      "conv", net.input(), {.filters = 16, .kernel = {5, 3}, .stride = {2, 1}, .padding = {2, 0}});
  EXPECT_EQ(net.type(strided).dims, (Dims{8, 16, 16, 22}));
  EXPECT_EQ(net.type(strided).layout, Layout::kChannelsLast);
  const Tensor relu = net.relu("relu", strided);
  EXPECT_EQ(net.type(relu), net.type(strided));
  const Tensor sum = net.add("add", strided, relu);
  EXPECT_EQ(net.type(sum), net.type(strided));
  const Tensor pooled = net.pooling("pool", sum, {PoolingMode::kAverage, {3, 3}, {2, 2}, {1, 1}});
  EXPECT_EQ(net.type(pooled).dims, (Dims{8, 16, 8, 11}));
  const Tensor hidden = net.fully_connected("fc", pooled, {.outputs = 10});
  EXPECT_EQ(net.type(hidden).dims, (Dims{8, 10}));
  EXPECT_EQ(net.type(net.relu("relu_fc", hidden)).dims, (Dims{8, 10}));
}

TEST(NetworkBuilder, ConvolvesAndPoolsInThreeDimensions) {
  NetworkBuilder net("volume", {2, 1, 9, 8, 7});
  const Tensor y = net.convolution(
      "conv", net.input(), {.filters = 4, .kernel = {3, 3, 3}, .stride = {2, 1, 1}, .padding = {1, 1, 0}});
  EXPECT_EQ(net.type(y).dims, (Dims{2, 4, 5, 8, 5}));
  const Tensor pooled = net.pooling("pool", y, {PoolingMode::kMax, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}});
  EXPECT_EQ(net.type(pooled).dims, (Dims{2, 4, 2, 4, 2}));
}

TEST(NetworkBuilder, BuildsWhatWasWritten) {
  NetworkBuilder net("tiny", {4, 1, 6, 6});
  const Tensor x = net.convolution("conv", net.input(), same_convolution(2));
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 7}));
  const Network network = std::move(net).build();
  EXPECT_EQ(network.name(), "tiny");
  EXPECT_EQ(network.batch(), 4);
  EXPECT_EQ(network.classes(), 7);
  EXPECT_EQ(network.type(network.targets()[0]), (TensorType{.data_type = DataType::kI32, .dims = {4}}));
  ASSERT_EQ(network.layers().size(), 3u);
  const Layer& loss = network.layers()[2];
  EXPECT_EQ(loss.name, "loss");
  EXPECT_EQ(loss.inputs, (std::vector<std::uint32_t>{network.layers()[1].output, network.targets()[0]}));
  EXPECT_EQ(network.type(loss.output), (TensorType{.dims = {kMetricsFloats}}));
  EXPECT_EQ(network.feature_map_name(network.input()), "images");
  EXPECT_EQ(network.feature_map_name(network.targets()[0]), "targets");
  EXPECT_EQ(network.feature_map_name(network.layers()[0].output), "conv.y");
  EXPECT_EQ(network.feature_map_name(loss.output), "loss.metrics");
}

// A mistake in a network with input 2x3x8x8, and the texts that the error must contain.
struct Mistake {
  std::string name;
  std::function<void(NetworkBuilder&)> make;
  std::vector<std::string> named;
};

std::ostream& operator<<(std::ostream& out, const Mistake& mistake) {
  return out << mistake.name;
}

class NetworkBuilderRejects : public testing::TestWithParam<Mistake> {};

TEST_P(NetworkBuilderRejects, WithLayerAndShapes) {
  NetworkBuilder net("net", {2, 3, 8, 8});
  try {
    GetParam().make(net);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    for (const std::string& name : GetParam().named) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

void convolve(NetworkBuilder& net, std::int64_t filters, Dims kernel, Dims stride, Dims padding) {
  net.convolution("c1", net.input(), {filters, std::move(kernel), std::move(stride), std::move(padding)});
}

void pool(NetworkBuilder& net, Dims kernel, Dims stride, Dims padding) {
  net.pooling("p1", net.input(),
              {PoolingMode::kMax, std::move(kernel), std::move(stride), std::move(padding)});
}

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

using N = NetworkBuilder;
INSTANTIATE_TEST_SUITE_P(
    All, NetworkBuilderRejects,
    testing::Values(
        Mistake{"NoFilters",
                [](N& n) {
                  convolve(n, 0, {3, 3}, {1, 1}, {0, 0});
                },
                {"c1", "0 filters", "2x3x8x8"}},
        Mistake{"KernelOfAnotherRank",
                [](N& n) {
                  convolve(n, 4, {3}, {1, 1}, {0, 0});
                },
                {"c1", "2x3x8x8"}},
        Mistake{"StrideOfAnotherRank",
                [](N& n) {
                  convolve(n, 4, {3, 3}, {}, {0, 0});
                },
                {"c1", "2x3x8x8"}},
        Mistake{"PaddingOfAnotherRank",
                [](N& n) {
                  convolve(n, 4, {3, 3}, {1, 1}, {0, 0, 0});
                },
                {"c1", "0x0x0"}},
        Mistake{"KernelNotPositive",
                [](N& n) {
                  convolve(n, 4, {3, 0}, {1, 1}, {0, 0});
                },
                {"c1", "3x0"}},
        Mistake{"StrideNotPositive",
                [](N& n) {
                  convolve(n, 4, {3, 3}, {0, 1}, {0, 0});
                },
                {"c1", "0x1"}},
        Mistake{"PaddingNegative",
                [](N& n) {
                  convolve(n, 4, {3, 3}, {1, 1}, {0, -1});
                },
                {"c1", "0x-1"}},
        Mistake{"KernelTooLarge",
                [](N& n) {
                  convolve(n, 4, {3, 11}, {1, 1}, {1, 1});
                },
                {"c1", "3x11", "2x3x8x8"}},
        Mistake{"PaddingHuge",
                [](N& n) {
                  convolve(n, 4, {3, 3}, {1, 1}, {kHuge, 0});
                },
                {"c1", "padding", "2x3x8x8"}},
        // Regression: the catalog of `cpu` refused a window that may lie in padding only, while the catalog
        // of `sim` planned with it.
        Mistake{"WindowOfPaddingOnly",
                [](N& n) {
                  convolve(n, 4, {1, 1}, {1, 1}, {0, 1});
                },
                {"layer c1", "padding must be less", "padding 0x1", "2x3x8x8"}},
        Mistake{"TransposedWindowOfPaddingOnly",
                [](N& n) {
                  n.transposed_convolution(
                      "t", n.input(), {.filters = 4, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 2}});
                },
                {"layer t", "padding must be less", "padding 0x2", "2x3x8x8"}},
        Mistake{"OutputOverflows",
                [](N& n) {
                  convolve(n, kHuge, {8, 8}, {1, 1}, {0, 0});
                },
                {"c1", "overflow"}},
        Mistake{"FilterOverflows",
                [](N& n) {
                  convolve(n, std::int64_t{1} << 50, {64, 64}, {64, 64}, {32, 32});
                },
                {"c1", "filter", "x3x64x64", "overflow"}},
        Mistake{
            "ConvolutionOfAMatrix",
            [](N& n) { n.convolution("c1", n.fully_connected("fc", n.input(), {4}), same_convolution(2)); },
            {"c1", "2x4"}},
        Mistake{"PoolingKernelTooLarge",
                [](N& n) {
                  pool(n, {9, 9}, {1, 1}, {0, 0});
                },
                {"p1", "9x9", "2x3x8x8"}},
        Mistake{"PoolingWindowOfPaddingOnly",
                [](N& n) {
                  pool(n, {2, 2}, {1, 1}, {2, 0});
                },
                {"p1", "2x0", "2x3x8x8"}},
        Mistake{"PoolingOfAMatrix",
                [](N& n) { n.pooling("p1", n.fully_connected("fc", n.input(), {4}), halving()); },
                {"p1", "2x4"}},
        Mistake{"NoOutputs", [](N& n) { n.fully_connected("fc", n.input(), {-1}); }, {"fc", "-1", "2x3x8x8"}},
        Mistake{"WeightsOverflow",
                [](N& n) { n.fully_connected("fc", n.input(), {std::int64_t{1} << 56}); },
                {"fc", "weights", "overflow"}},
        Mistake{"AddOfDifferentShapes",
                [](N& n) { n.add("sum", n.input(), n.pooling("p", n.input(), halving())); },
                {"sum", "2x3x8x8", "2x3x4x4"}},
        Mistake{"TargetsOfAnotherShape",
                [](N& n) {
                  n.softmax_cross_entropy("loss", n.input(), {},
                                          n.target("labels", {.data_type = DataType::kI32, .dims = {2, 8}}));
                },
                {"layer loss", "images", "2x3x8x8", "2x8x8 (i32)", "labels", "2x8"}},
        Mistake{"SharedTargetsOfAnotherShape",
                [](N& n) {
                  n.softmax_cross_entropy("loss", n.input());
                  n.softmax_cross_entropy("loss2", n.fully_connected("fc", n.input(), {4}));
                },
                {"layer loss2", "2x8x8", "share"}},
        Mistake{"TargetsOfAnotherBatch",
                [](N& n) { n.target("labels", {.data_type = DataType::kI32, .dims = {3}}); },
                {"labels", "3", "batch, 2"}},
        Mistake{"TargetsUnread",
                [](N& n) {
                  n.target("labels", {.data_type = DataType::kI32, .dims = {2}});
                  n.softmax_cross_entropy("loss", n.input());
                  std::move(n).build();
                },
                {"targets labels"}},
        Mistake{"ConcatenationOfDifferentShapes",
                [](N& n) {
                  n.concatenation("cat", {n.input(), n.pooling("p", n.input(), halving())});
                },
                {"layer cat", "'images'", "2x3x8x8", "'p.y'", "2x3x4x4"}},
        Mistake{"ConcatenationOfOne", [](N& n) { n.concatenation("cat", {n.input()}); }, {"cat", "two"}},
        Mistake{"GroupsThatDoNotDivide",
                [](N& n) {
                  n.convolution(
                      "c1", n.input(),
                      {.filters = 4, .kernel = {1, 1}, .stride = {1, 1}, .padding = {0, 0}, .groups = 2});
                },
                {"c1", "2 groups", "3 channels"}},
        Mistake{
            "DilationTooLarge",
            [](N& n) {
              n.convolution(
                  "c1", n.input(),
                  {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 4}});
            },
            {"c1", "dilation 1x4", "2x3x8x8"}},
        Mistake{"TransposedWithoutAnOutput",
                [](N& n) {
                  n.transposed_convolution(
                      "t", n.pooling("p", n.input(), {PoolingMode::kMax, {8, 8}, {1, 1}, {0, 0}}),
                      {.filters = 4, .kernel = {2, 2}, .stride = {1, 1}, .padding = {1, 1}});
                },
                {"layer t", "padding 1x1"}},
        Mistake{"UpsamplingByNothing",
                [](N& n) {
                  n.upsampling("u", n.input(), {.factors = {2, 0}});
                },
                {"layer u", "2x0"}},
        Mistake{"UpsamplingOfAnotherRank",
                [](N& n) { n.upsampling("u", n.input(), {.factors = {2}}); },
                {"layer u", "2x3x8x8"}},
        Mistake{"NormalizationOfOneElement",
                [](N& n) {
                  NetworkBuilder one("one", {1, 3});
                  one.batch_normalization("bn", one.input());
                  n.input();
                },
                {"layer bn", "1x3"}},
        Mistake{"NormalizationGroupsThatDoNotDivide",
                [](N& n) { n.group_normalization("gn", n.input(), {.groups = 2}); },
                {"layer gn", "2 groups", "2x3x8x8"}},
        Mistake{"LrnOfEvenSize", [](N& n) { n.lrn("lrn", n.input(), {.size = 4}); }, {"lrn", "4", "odd"}},
        Mistake{"DropoutOfEverything", [](N& n) { n.dropout("d", n.input(), 1); }, {"layer d", "1.0"}},
        Mistake{"NegativeSlope", [](N& n) { n.relu("r", n.input(), -1); }, {"layer r", "-1"}},
        Mistake{"WeightOfNothing",
                [](N& n) { n.softmax_cross_entropy("loss", n.input(), {.weight = 0}); },
                {"loss", "weight"}},
        Mistake{"NoCustomLayer", [](N& n) { n.custom("c", {n.input()}, nullptr); }, {"layer c", "no custom"}},
        Mistake{"OutputTwice",
                [](N& n) {
                  const Tensor y = n.relu("r", n.input());
                  n.output(y);
                  n.output(y);
                },
                {"r.y", "twice"}},
        Mistake{"LossAsAFeatureMap",
                [](N& n) {
                  n.softmax_cross_entropy("loss", n.input());
                  n.relu("r", Tensor{2});
                },
                {"layer r", "'loss.metrics'", "feature map"}},
        Mistake{"UnknownFeatureMap", [](N& n) { n.relu("r", Tensor{99}); }, {"layer r", "99"}},
        Mistake{
            "NoFeatureMap", [](N& n) { n.add("sum", n.input(), Tensor{}); }, {"layer sum", "empty tensor"}},
        Mistake{"NoFeatureMapToPool",
                [](N& n) { n.global_pooling("p", Tensor{99}, PoolingMode::kMax); },
                {"layer p", "99"}},
        Mistake{"NoFeatureMapToNormalise",
                [](N& n) { n.instance_normalization("in", Tensor{}); },
                {"layer in", "empty tensor"}},
        Mistake{"TargetsAsAPrediction",
                [](N& n) {
                  n.mean_squared_error("loss", n.target("wanted", {.dims = {2, 3, 8, 8}}));
                },
                {"layer loss", "'wanted'"}},
        Mistake{"TargetsAsAFeatureMap", [](N& n) { n.relu("r", Tensor{1}); }, {"layer r"}},
        Mistake{"NameTaken", [](N& n) { n.relu("r", n.relu("r", n.input())); }, {"layer r", "taken"}},
        Mistake{"NameEmpty", [](N& n) { n.relu("", n.input()); }, {"empty"}},
        Mistake{"NameWithADot", [](N& n) { n.relu("a.y", n.input()); }, {"a.y", "dot"}},
        Mistake{"NoLoss", [](N& n) { n.relu("r", n.input()), std::move(n).build(); }, {"net", "no loss"}},
        Mistake{"FeatureMapUnread",
                [](N& n) {
                  n.convolution("aside", n.input(), same_convolution(5));
                  n.softmax_cross_entropy("loss", n.fully_connected("fc", n.input(), {4}));
                  std::move(n).build();
                },
                {"aside.y", "2x5x8x8"}}),
    [](const auto& instance) { return instance.param.name; });

TEST(NetworkBuilder, RejectsInputs) {
  EXPECT_THROW(NetworkBuilder("net", {}), InvalidArgument);
  EXPECT_THROW(NetworkBuilder("net", {4}), InvalidArgument);
  EXPECT_THROW(NetworkBuilder("net", {4, 0, 8, 8}), InvalidArgument);
  EXPECT_THROW(NetworkBuilder("net", {-4, 1, 8, 8}), InvalidArgument);
  EXPECT_THROW(NetworkBuilder("net", {kHuge, 4, 8, 8}), InvalidArgument);
}

TEST(NetworkBuilder, KnowsTheShapesOfEveryKindOfLayer) {
  NetworkBuilder net("kinds", {2, 6, 5, 7});
  const auto dims = [&](Tensor x) { return net.type(x).dims; };
  const Tensor x = net.input();
  EXPECT_EQ(dims(net.convolution(
                "depthwise", x,
                {.filters = 6, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .groups = 6})),
            (Dims{2, 6, 5, 7}));
  EXPECT_EQ(dims(net.convolution(
                "dilated", x,
                {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {0, 0}, .dilation = {2, 3}})),
            (Dims{2, 4, 1, 1}));
  EXPECT_EQ(dims(net.transposed_convolution(
                "transposed", x, {.filters = 3, .kernel = {2, 3}, .stride = {2, 2}, .padding = {0, 1}})),
            (Dims{2, 3, 10, 13}));
  EXPECT_EQ(dims(net.global_pooling("global", x, PoolingMode::kAverage)), (Dims{2, 6, 1, 1}));
  EXPECT_EQ(dims(net.upsampling("up", x, {.mode = UpsamplingMode::kLinear, .factors = {2, 3}})),
            (Dims{2, 6, 10, 21}));
  EXPECT_EQ(dims(net.concatenation("cat", {x, net.relu("r", x), x})), (Dims{2, 18, 5, 7}));
  for (const Tensor same : {net.batch_normalization("bn", x), net.instance_normalization("in", x),
                            net.group_normalization("gn", x, {.groups = 3}), net.lrn("lrn", x),
                            net.dropout("drop", x), net.sigmoid("sigmoid", x), net.relu("leaky", x, 0.01F)}) {
    EXPECT_EQ(dims(same), (Dims{2, 6, 5, 7}));
  }
}

// Padding must be smaller than the window, and dilation widens the window.
TEST(NetworkBuilder, PaddingMayBeAsWideAsADilatedWindowAllows) {
  const auto pad = [](std::int64_t padding) {
    NetworkBuilder net("net", {2, 3, 8, 8});
    return net.type(net.convolution(
        "c", net.input(),
        {.filters = 4, .kernel = {2, 2}, .stride = {1, 1}, .padding = {padding, 0}, .dilation = {3, 1}}));
  };
  EXPECT_EQ(pad(3).dims, (Dims{2, 4, 11, 7}));
  EXPECT_THROW(pad(4), InvalidArgument);
}

TEST(NetworkBuilder, SeveralLossesAndOutputs) {
  NetworkBuilder net("several", {2, 3, 4, 4});
  const Tensor y = net.relu("r", net.input());
  const Tensor aside = net.sigmoid("aside", y);
  net.output(aside);
  net.dice_cross_entropy("dice", y, {.weight = 0.5F});
  net.softmax_cross_entropy("places", y);
  net.mean_squared_error("error", y, {}, net.target("wanted", net.type(y)));
  const Network network = std::move(net).build();
  ASSERT_EQ(network.targets().size(), 2U);  // `targets` is shared
  EXPECT_EQ(network.type(network.targets()[0]), (TensorType{.data_type = DataType::kI32, .dims = {2, 4, 4}}));
  EXPECT_EQ(network.type(network.targets()[1]).dims, (Dims{2, 3, 4, 4}));
  ASSERT_EQ(network.outputs().size(), 1U);
  EXPECT_EQ(network.feature_map_name(network.outputs()[0]), "aside.y");
  EXPECT_EQ(network.classes(), 3);
}

TEST(Network, OfAnotherBatch) {
  NetworkBuilder net("batch", {4, 3, 8, 8});
  const Tensor y = net.pooling("p", net.input(), halving());
  net.softmax_cross_entropy("loss", net.fully_connected("fc", y, {.outputs = 5}));
  const Network network = std::move(net).build();
  const Network other = network.with_batch(7);
  EXPECT_EQ(other.batch(), 7);
  EXPECT_EQ(other.type(other.targets()[0]).dims, (Dims{7}));
  EXPECT_EQ(other.type(other.layers()[0].output).dims, (Dims{7, 3, 4, 4}));
  EXPECT_EQ(other.type(other.layers()[1].output).dims, (Dims{7, 5}));
  EXPECT_EQ(other.type(other.layers()[2].output).dims, (Dims{kMetricsFloats}));
  EXPECT_EQ(network.batch(), 4);
  EXPECT_THROW((void)network.with_batch(0), InvalidArgument);
}

// A rejected layer leaves no trace: its name can be used again.
TEST(NetworkBuilder, GoesOnAfterARejectedLayer) {
  NetworkBuilder net("net", {2, 3, 8, 8});
  EXPECT_THROW(net.fully_connected("fc", net.input(), {0}), InvalidArgument);
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.input(), {4}));
  EXPECT_EQ(std::move(net).build().layers().size(), 2u);
}

}  // namespace
}  // namespace vdnn::network_test
