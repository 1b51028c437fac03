#include "vdnn/network.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {
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
  EXPECT_EQ(network.type(network.targets()), (TensorType{.data_type = DataType::kI32, .dims = {4}}));
  ASSERT_EQ(network.layers().size(), 3u);
  const Layer& loss = network.layers()[2];
  EXPECT_EQ(loss.name, "loss");
  EXPECT_EQ(loss.inputs, (std::vector<std::uint32_t>{network.layers()[1].output, network.targets()}));
  EXPECT_EQ(network.type(loss.output), (TensorType{.dims = {2}}));
  EXPECT_EQ(network.feature_map_name(network.input()), "images");
  EXPECT_EQ(network.feature_map_name(network.targets()), "targets");
  EXPECT_EQ(network.feature_map_name(network.layers()[0].output), "conv.y");
  EXPECT_EQ(network.feature_map_name(loss.output), "metrics");
}

// A mistake in a network with input 2x3x8x8, and what the error has to name.
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
        Mistake{"PaddingOverflows",
                [](N& n) {
                  convolve(n, 4, {3, 3}, {1, 1}, {kHuge, 0});
                },
                {"c1", "overflow"}},
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
        Mistake{
            "LogitsWithSpace", [](N& n) { n.softmax_cross_entropy("loss", n.input()); }, {"loss", "2x3x8x8"}},
        Mistake{"UnknownFeatureMap", [](N& n) { n.relu("r", Tensor{99}); }, {"layer r", "99"}},
        Mistake{"NoFeatureMap", [](N& n) { n.add("sum", n.input(), Tensor{}); }, {"layer sum"}},
        Mistake{"TargetsAsAFeatureMap", [](N& n) { n.relu("r", Tensor{1}); }, {"layer r"}},
        Mistake{"NameTaken", [](N& n) { n.relu("r", n.relu("r", n.input())); }, {"layer r", "taken"}},
        Mistake{"NameEmpty", [](N& n) { n.relu("", n.input()); }, {"empty"}},
        Mistake{"NameWithADot", [](N& n) { n.relu("a.y", n.input()); }, {"a.y", "dot"}},
        Mistake{"LayerAfterTheLoss",
                [](N& n) {
                  n.softmax_cross_entropy("loss", n.fully_connected("fc", n.input(), {4}));
                  n.relu("late", n.input());
                },
                {"late", "loss"}},
        Mistake{"SecondLoss",
                [](N& n) {
                  const Tensor logits = n.fully_connected("fc", n.input(), {4});
                  n.softmax_cross_entropy("loss", logits);
                  n.softmax_cross_entropy("loss2", logits);
                },
                {"loss2"}},
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

// A layer that is rejected leaves no trace: the same name may be tried again.
TEST(NetworkBuilder, GoesOnAfterARejectedLayer) {
  NetworkBuilder net("net", {2, 3, 8, 8});
  EXPECT_THROW(net.fully_connected("fc", net.input(), {0}), InvalidArgument);
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.input(), {4}));
  EXPECT_EQ(std::move(net).build().layers().size(), 2u);
}

}  // namespace
}  // namespace vdnn
