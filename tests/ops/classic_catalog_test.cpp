#include "vdnn/classic_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "src/ops/classic/convolution_algorithms.h"
#include "src/ops/product_names.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The recipe of the only layer of a network; the network computes the output's shape.
LayerRecipe recipe_of(const Dims& input, const OpSpec& spec, Mode mode = Mode::kTraining, int inputs = 1) {
  NetworkBuilder net("one", input);
  const TensorType type = net.type(net.input());
  const std::vector<Tensor> reads(static_cast<std::size_t>(inputs), net.input());
  const std::vector<TensorType> types(reads.size(), type);
  const std::array<TensorType, 1> output{net.type(net.layer("layer", spec, reads))};
  return make_classic_catalog()->recipe(spec, types, output, mode);
}

// "X Y dY -> dX"
std::string describe(const OpRecipe& op) {
  const auto name = [](const Operand& operand) {
    static const std::array<std::string, 9> names{"X", "Y", "W", "S", "dY", "dX", "dW", "M", "norm"};
    const std::string number = operand.index == 0 ? "" : std::to_string(operand.index);
    return names.at(static_cast<std::size_t>(operand.role)) + number;
  };
  std::string text;
  for (const Operand& operand : op.reads) {
    text += name(operand) + " ";
  }
  text += "->";
  for (const Operand& operand : op.writes) {
    text += " " + name(operand);
  }
  for (const Overwrite& overwrite : op.may_overwrite) {
    text += ", " + name(op.writes[overwrite.write]) + " over " + name(op.reads[overwrite.read]);
  }
  return text;
}

std::vector<std::string> describe(const std::vector<OpRecipe>& ops) {
  std::vector<std::string> texts;
  std::ranges::transform(ops, std::back_inserter(texts), [](const OpRecipe& op) { return describe(op); });
  return texts;
}

std::vector<std::string> names(const std::vector<Algorithm>& algorithms) {
  std::vector<std::string> result;
  std::ranges::transform(algorithms, std::back_inserter(result), &Algorithm::name);
  return result;
}

std::map<std::string, std::uint64_t> workspaces(const std::vector<Algorithm>& algorithms) {
  std::map<std::string, std::uint64_t> result;
  for (const Algorithm& algorithm : algorithms) {
    result[algorithm.name] = algorithm.workspace_bytes;
  }
  return result;
}

ConvolutionSpec convolution(std::int64_t filters, std::int64_t extent, std::int64_t stride,
                            std::int64_t padding, std::size_t rank = 2) {
  return {.filters = filters,
          .kernel = Dims(rank, extent),
          .stride = Dims(rank, stride),
          .padding = Dims(rank, padding)};
}

// conv2 of AlexNet.
const std::vector<Algorithm>& five_by_five(LayerRecipe& recipe, Direction pass) {
  recipe = recipe_of({128, 64, 27, 27}, convolution(192, 5, 1, 2));
  return pass == Direction::kForward          ? recipe.forward[0].algorithms
         : pass == Direction::kBackwardFilter ? recipe.backward[0].algorithms
                                              : recipe.backward[1].algorithms;
}

TEST(ClassicConvolution, HasGradientsInOpsOfTheirOwn) {
  const LayerRecipe recipe = recipe_of({4, 3, 8, 8}, convolution(5, 3, 1, 1));
  EXPECT_THAT(describe(recipe.forward), ElementsAre("X W W1 -> Y"));
  EXPECT_THAT(describe(recipe.backward), ElementsAre("X dY -> dW dW1", "dY W -> dX"));
  EXPECT_THAT(recipe.saved, IsEmpty());
  ASSERT_EQ(recipe.parameters.size(), 2u);
  EXPECT_EQ(recipe.parameters[0].type.dims, (Dims{5, 3, 3, 3}));
  EXPECT_EQ(recipe.parameters[0].storage_bytes, 4u * 5 * 3 * 3 * 3);
  EXPECT_EQ(recipe.parameters[0].fan_in, 3 * 3 * 3);
  EXPECT_EQ(recipe.parameters[1].type.dims, (Dims{5}));
}

TEST(ClassicConvolution, GoesWithoutABias) {
  ConvolutionSpec spec = convolution(5, 3, 1, 1);
  spec.bias = false;
  const LayerRecipe recipe = recipe_of({4, 3, 8, 8}, spec);
  EXPECT_THAT(describe(recipe.forward), ElementsAre("X W -> Y"));
  EXPECT_THAT(describe(recipe.backward), ElementsAre("X dY -> dW", "dY W -> dX"));
  EXPECT_EQ(recipe.parameters.size(), 1u);
}

TEST(ClassicConvolution, CostIsArithmeticAndOperands) {
  ConvolutionSpec spec = convolution(6, 3, 1, 1);
  spec.groups = 2;
  const LayerRecipe recipe = recipe_of({2, 4, 8, 10}, spec);
  EXPECT_EQ(recipe.parameters[0].type.dims, (Dims{6, 2, 3, 3}));
  for (const OpRecipe& op : {recipe.forward[0], recipe.backward[0], recipe.backward[1]}) {
    EXPECT_EQ(op.cost.flops, 2.0 * (2 * 6 * 8 * 10) * (2 * 3 * 3));
    const int bias = op.direction == Direction::kBackwardData ? 0 : 6;
    EXPECT_EQ(op.cost.bytes, 4.0 * (2 * 4 * 80 + 2 * 6 * 80 + 6 * 2 * 9 + bias));
  }
}

TEST(ClassicAlgorithms, WorkspacesFollowTheirFormulas) {
  LayerRecipe recipe;
  // One tile of 32 x 17 frequencies for each of 128 (64 + 192) maps and of 64 x 192 filters.
  constexpr std::uint64_t kSpectra = 8ULL * 32 * 17 * (128ULL * (64 + 192) + 64ULL * 192);
  constexpr std::uint64_t kWindows = 4ULL * 128 * 64 * 25 * 27 * 27;
  EXPECT_THAT(
      workspaces(five_by_five(recipe, Direction::kForward)),
      UnorderedElementsAre(Pair("implicit_gemm", 0), Pair("implicit_precomp_gemm", 4 * 64 * 25),
                           Pair("gemm", kWindows), Pair("fft", kSpectra), Pair("fft_tiling", kSpectra)));
  EXPECT_EQ(workspaces(five_by_five(recipe, Direction::kBackwardData)).at("implicit_precomp_gemm"),
            4u * 192 * 25);
  EXPECT_EQ(workspaces(five_by_five(recipe, Direction::kBackwardFilter)).at("fft"), kSpectra);

  // conv1_2 of VGG: planes of 256 x 129 frequencies, or 8 x 8 tiles of 32 x 17 frequencies with 30 x 30
  // outputs each.
  const LayerRecipe vgg = recipe_of({64, 64, 224, 224}, convolution(64, 3, 1, 1));
  EXPECT_EQ(workspaces(vgg.forward[0].algorithms).at("fft"), 8ULL * 256 * 129 * (64 * 128 + 64 * 64));
  EXPECT_EQ(workspaces(vgg.forward[0].algorithms).at("fft_tiling"),
            8ULL * 32 * 17 * (64 * 64 * 128 + 64 * 64));
  EXPECT_EQ(workspaces(vgg.forward[0].algorithms).at("winograd"), 4u * 16 * 64 * 64);
}

TEST(ClassicAlgorithms, ApplyWhereTheyAreDocumentedTo) {
  const auto forward = [](const Dims& input, const ConvolutionSpec& spec) {
    return names(recipe_of(input, spec).forward[0].algorithms);
  };
  const Dims x{2, 8, 40, 40};
  EXPECT_THAT(forward(x, convolution(8, 3, 1, 1)),
              UnorderedElementsAre("implicit_gemm", "implicit_precomp_gemm", "gemm", "fft", "fft_tiling",
                                   "winograd"));
  EXPECT_THAT(forward(x, convolution(8, 3, 2, 1)),
              UnorderedElementsAre("implicit_gemm", "implicit_precomp_gemm", "gemm"))
      << "transforms require a stride of 1";
  EXPECT_THAT(forward({2, 8, 32, 255}, convolution(8, 5, 1, 1)),
              UnorderedElementsAre("implicit_gemm", "implicit_precomp_gemm", "gemm", "fft_tiling"))
      << "257 with padding exceeds a plane";
  EXPECT_THAT(forward(x, convolution(8, 33, 1, 0)),
              UnorderedElementsAre("implicit_gemm", "implicit_precomp_gemm", "gemm", "fft"))
      << "the kernel is larger than a tile";
  EXPECT_THAT(forward({2, 8, 10, 10, 10}, convolution(8, 3, 1, 1, 3)),
              UnorderedElementsAre("implicit_gemm", "implicit_precomp_gemm"));

  ConvolutionSpec dilated = convolution(8, 3, 1, 1);
  dilated.dilation = {1, 2};
  EXPECT_THAT(forward(x, dilated), ElementsAre("implicit_gemm"));
  dilated.dilation = {1, 1};
  EXPECT_EQ(forward(x, dilated).size(), 6u) << "a dilation of 1 is no dilation";
  ConvolutionSpec depthwise = convolution(8, 3, 1, 1);
  depthwise.groups = 8;
  EXPECT_THAT(forward(x, depthwise), ElementsAre("implicit_gemm"));
}

TEST(ClassicAlgorithms, WinogradMakesNoFilterGradients) {
  const LayerRecipe recipe = recipe_of({2, 8, 40, 40}, convolution(8, 3, 1, 1));
  EXPECT_FALSE(workspaces(recipe.backward[0].algorithms).contains("winograd"));
  EXPECT_TRUE(workspaces(recipe.backward[1].algorithms).contains("winograd"));
}

// The cost model: algorithms that save arithmetic win where arithmetic dominates; elsewhere those that move
// no data win.
TEST(ClassicAlgorithms, TheFastestComesFirst) {
  LayerRecipe recipe;
  // 57 GFLOP take 13.6 ms as matrix products, and GEMM moves its matrix in another 8.9 ms. Implicit GEMM
  // takes 1 / 0.6 of the 13.6 ms. FFT needs 8 GFLOP, which take 3.5 ms at 0.55 of the rate.
  EXPECT_THAT(names(five_by_five(recipe, Direction::kForward)),
              ElementsAre("fft", "fft_tiling", "implicit_precomp_gemm", "gemm", "implicit_gemm"));
  // With few channels, memory bandwidth is the limit, so algorithms that move more data lose.
  EXPECT_THAT(names(recipe_of({64, 8, 32, 32}, convolution(8, 1, 1, 0)).forward[0].algorithms),
              ElementsAre("implicit_gemm", "implicit_precomp_gemm", "gemm", "fft", "fft_tiling"));
  // 3 x 3 with many channels: Winograd needs 2.25 times less arithmetic and hardly any traffic.
  const LayerRecipe deep = recipe_of({64, 512, 28, 28}, convolution(512, 3, 1, 1));
  EXPECT_EQ(deep.forward[0].algorithms[0].name, "winograd");
  EXPECT_EQ(deep.backward[0].algorithms[0].name, "fft");
  EXPECT_EQ(deep.backward[1].algorithms[0].name, "winograd");
  // Large maps: one plane of 256 x 256 wastes work that tiles save.
  const LayerRecipe wide = recipe_of({64, 64, 224, 224}, convolution(64, 3, 1, 1));
  EXPECT_EQ(wide.backward[0].algorithms[0].name, "fft_tiling");
}

// The A100 computes TF32 3.7 times as fast as fp32. The RTX 4090 computes both at one rate, so Winograd stays
// first there.
TEST(TensorCoreAlgorithms, AreInTheOrderOfTheProfilesRates) {
  const auto forward = [](const std::string& gpu) {
    const ops::Convolution deep{.batch = 64,
                                .input_channels = 512,
                                .output_channels = 512,
                                .input = {28, 28},
                                .output = {28, 28},
                                .kernel = {3, 3},
                                .stride = {1, 1},
                                .padding = {1, 1},
                                .dilation = {1, 1}};
    return classic::tensor_core_algorithms(deep, Direction::kForward, sim_profile(gpu));
  };
  EXPECT_EQ(forward("a100")[0].name, "implicit_precomp_gemm in tf32");
  EXPECT_EQ(forward("rtx4090")[0].name, "winograd");
  for (const Algorithm& algorithm : forward("a100")) {
    const bool multiplies = algorithm.name.find("gemm") != std::string::npos;
    EXPECT_EQ(ops::is_in_tf32(algorithm.name), multiplies) << algorithm.name;
    EXPECT_EQ(algorithm.cost->precision, multiplies ? ProductPrecision::kTf32 : ProductPrecision::kFp32);
  }
}

TEST(ClassicAlgorithms, WorkspacesThatOverflowAreErrors) {
  const Dims large{std::int64_t{1} << 52, 8, 8, 8};  // feature maps of 2^63 bytes, a matrix of 9 times that
  EXPECT_THROW(recipe_of(large, convolution(8, 3, 1, 1)), InvalidArgument);
  ConvolutionSpec depthwise = convolution(8, 3, 1, 1);
  depthwise.groups = 8;
  EXPECT_NO_THROW(recipe_of(large, depthwise)) << "it needs no workspace";
}

TEST(ClassicTransposedConvolution, ExchangesThePassesOfAConvolution) {
  const TransposedConvolutionSpec up{
      .filters = 16, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .bias = false};
  const LayerRecipe recipe = recipe_of({8, 64, 28, 28}, up);
  EXPECT_EQ(recipe.parameters[0].type.dims, (Dims{16, 64, 3, 3}));
  EXPECT_EQ(recipe.parameters[0].fan_in, 64 * 9);
  // The convolution from Y (16 channels) to X (64).
  ConvolutionSpec spec = convolution(64, 3, 1, 1);
  spec.bias = false;
  const LayerRecipe down = recipe_of({8, 16, 28, 28}, spec);
  const auto same = [](const OpRecipe& a, const OpRecipe& b) {
    return names(a.algorithms) == names(b.algorithms) &&
           workspaces(a.algorithms) == workspaces(b.algorithms) && a.cost.flops == b.cost.flops &&
           a.cost.bytes == b.cost.bytes;
  };
  EXPECT_TRUE(same(recipe.forward[0], down.backward[1]));
  EXPECT_TRUE(same(recipe.backward[0], down.backward[0]));
  EXPECT_TRUE(same(recipe.backward[1], down.forward[0]));
  EXPECT_FALSE(same(recipe.forward[0], down.forward[0]));
  EXPECT_THAT(describe(recipe.forward), ElementsAre("X W -> Y"));
  EXPECT_THAT(describe(recipe.backward), ElementsAre("X dY -> dW", "dY W -> dX"));
}

// Windows begin one stride apart, so fewer of them overlap in one output. Regression: fan-in counted the
// whole window, and the initial filters were too small.
TEST(ClassicTransposedConvolution, SumsFewerProductsWhereItHasAStride) {
  const TransposedConvolutionSpec up{.filters = 4, .kernel = {4, 4}, .stride = {2, 2}, .padding = {1, 1}};
  EXPECT_EQ(recipe_of({8, 6, 14, 14}, up).parameters[0].fan_in, 6 * 16 / 4);
}

TEST(ClassicFullyConnected, IsAMatrixProduct) {
  const LayerRecipe recipe = recipe_of({4, 3, 5, 7}, FullyConnectedSpec{.outputs = 10});
  EXPECT_EQ(recipe.parameters[0].type.dims, (Dims{10, 3, 5, 7}));
  EXPECT_EQ(recipe.parameters[0].fan_in, 105);
  EXPECT_THAT(workspaces(recipe.forward[0].algorithms), ElementsAre(Pair("gemm", 0)));
  EXPECT_EQ(recipe.forward[0].cost.flops, 2.0 * 4 * 10 * 105);
  EXPECT_EQ(recipe.forward[0].cost.bytes, 4.0 * (4 * 105 + 4 * 10 + 10 * 105 + 10));
}

// Pooling reads the operands that the paper counts.
TEST(ClassicCatalog, PoolingGoesBackFromItsFeatureMaps) {
  for (const PoolingMode mode : {PoolingMode::kMax, PoolingMode::kAverage}) {
    const LayerRecipe recipe = recipe_of(
        {2, 3, 9, 9}, PoolingSpec{.mode = mode, .kernel = {3, 3}, .stride = {2, 2}, .padding = {0, 0}});
    EXPECT_THAT(describe(recipe.forward), ElementsAre("X -> Y"));
    EXPECT_THAT(describe(recipe.backward), ElementsAre("X Y dY -> dX"));
    EXPECT_THAT(recipe.saved, IsEmpty());
  }
}

TEST(ClassicCatalog, ActivationsWorkInPlace) {
  for (const OpSpec& spec : std::initializer_list<OpSpec>{ReluSpec{}, ReluSpec{0.01F}, SigmoidSpec{}}) {
    const LayerRecipe recipe = recipe_of({2, 3, 4, 4}, spec);
    EXPECT_THAT(describe(recipe.forward), ElementsAre("X -> Y, Y over X"));
    EXPECT_THAT(describe(recipe.backward), ElementsAre("Y dY -> dX, dX over dY"));
  }
}

TEST(ClassicCatalog, NormalisationAcrossChannelsSavesNothing) {
  const LayerRecipe recipe = recipe_of({2, 8, 4, 4}, LrnSpec{});
  EXPECT_THAT(describe(recipe.forward), ElementsAre("X -> Y"));
  EXPECT_THAT(describe(recipe.backward), ElementsAre("X Y dY -> dX"));
  EXPECT_THAT(recipe.saved, IsEmpty());
}

TEST(ClassicCatalog, UpsamplingAndDropoutNeedTheGradientAlone) {
  EXPECT_THAT(describe(recipe_of({2, 8, 4, 4}, UpsamplingSpec{.factors = {2, 3}}).backward),
              ElementsAre("dY -> dX"));
  const LayerRecipe dropout = recipe_of({2, 8, 4, 4}, DropoutSpec{});
  EXPECT_THAT(describe(dropout.backward), ElementsAre("dY -> dX, dX over dY"));
  EXPECT_THAT(dropout.saved, IsEmpty());
}

TEST(ClassicCatalog, InferenceSavesNothingAndHasNoBackwardPass) {
  const PoolingSpec pooling{.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
  const TransposedConvolutionSpec up{.filters = 2, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
  const std::vector<OpSpec> layers{convolution(4, 3, 1, 1),
                                   up,
                                   FullyConnectedSpec{.outputs = 3},
                                   ReluSpec{},
                                   SigmoidSpec{},
                                   pooling,
                                   UpsamplingSpec{.factors = {2, 2}},
                                   BatchNormalizationSpec{},
                                   GroupNormalizationSpec{},
                                   LrnSpec{},
                                   DropoutSpec{}};
  for (const OpSpec& spec : layers) {
    const LayerRecipe training = recipe_of({2, 4, 8, 8}, spec, Mode::kTraining);
    const LayerRecipe inference = recipe_of({2, 4, 8, 8}, spec, Mode::kInference);
    EXPECT_FALSE(training.backward.empty()) << spec.index();
    EXPECT_TRUE(inference.backward.empty() && inference.saved.empty()) << spec.index();
    EXPECT_EQ(inference.parameters.size(), training.parameters.size()) << spec.index();
    for (const OpRecipe& op : inference.forward) {
      EXPECT_FALSE(op.algorithms.empty()) << spec.index();
    }
  }
  for (const OpSpec& spec : std::initializer_list<OpSpec>{AddSpec{}, ConcatenationSpec{}}) {
    EXPECT_EQ(recipe_of({2, 4, 8, 8}, spec, Mode::kTraining, 2).backward.size(), 2u);
    EXPECT_TRUE(recipe_of({2, 4, 8, 8}, spec, Mode::kInference, 2).backward.empty());
  }
}

// Doubles its input and saves an arbitrary value.
class Doubling final : public CustomLayer {
 public:
  std::string kind() const override { return "doubling"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override {
    using enum OperandRole;
    LayerRecipe recipe;
    recipe.forward = {{.direction = Direction::kForward,
                       .reads = {{kInput, 0}},
                       .writes = {{kOutput, 0}},
                       .may_overwrite = {},
                       .algorithms = {{.name = question.device}},
                       .cost = {}}};
    return recipe;
  }
  void run(const CustomLaunch&) const override { FAIL() << "nothing runs on a simulated device"; }
};

TEST(ClassicCatalog, AsksCustomLayersForTheirPartOnAGpu) {
  const LayerRecipe recipe = recipe_of({2, 3}, CustomSpec{std::make_shared<Doubling>()}, Mode::kInference);
  EXPECT_THAT(names(recipe.forward[0].algorithms), ElementsAre("sim"));
}

TEST(ClassicCatalog, RefusesWhatIsNoLayer) {
  const std::array<TensorType, 1> types{TensorType{.dims = {2, 3}}};
  for (const OpSpec& spec : std::initializer_list<OpSpec>{SgdSpec{}, AdamSpec{}, GradientNormSpec{}}) {
    EXPECT_THROW(make_classic_catalog()->recipe(spec, types, types, Mode::kTraining), InvalidArgument);
  }
}

TEST(ClassicCatalog, NamesItsSource) {
  EXPECT_EQ(make_classic_catalog()->algorithms_source(), "classic");
}

// A network with any loss and any optimizer, clipped or not, lowers to a tape.
TEST(ClassicCatalog, TrainsEveryLossWithEveryOptimizer) {
  const auto build = [](auto add_loss) {
    NetworkBuilder net("losses", {4, 3, 8, 8});
    add_loss(net, net.convolution("conv", net.input(), convolution(5, 3, 1, 1)));
    return std::move(net).build();
  };
  const std::vector<Network> networks{
      build([](NetworkBuilder& net, Tensor x) { net.softmax_cross_entropy("loss", x); }),
      build([](NetworkBuilder& net, Tensor x) { net.mean_squared_error("loss", x); }),
      build([](NetworkBuilder& net, Tensor x) { net.dice_cross_entropy("loss", x); })};
  const std::vector<std::pair<OptimizerSpec, std::size_t>> optimizers{
      {SgdSpec{.momentum = 0.9F}, 1}, {AdamSpec{}, 2}, {AdamSpec{.decoupled = true}, 2}};
  for (const Network& network : networks) {
    for (const auto& [optimizer, states] : optimizers) {
      const auto tape =
          lower_to_tape(network, *make_classic_catalog(), {.optimizer = optimizer, .clip_norm = 1.0F});
      EXPECT_EQ(tape->parameters()[0].state.size(), states);
      EXPECT_TRUE(std::ranges::any_of(tape->ops(), [](const Op& op) { return op.name == "gradients.norm"; }));
    }
  }
}

}  // namespace
}  // namespace vdnn
