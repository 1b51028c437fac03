// Convolutions and fully connected layers: every algorithm of every pass against the reference.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <variant>

#include "tests/ops/layer_cases.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using reference::Array;
using reference::Sums;

// What the reference has to say of one layer, whichever kind it is.
struct Expected {
  Sums output;
  Sums input_gradient;
  Sums filter_gradient;
  Sums bias_gradient;
};

Expected expect_of(const LayerCase& layer, const Array& x, const Array& filter, const Array& bias,
                   const Array& dy) {
  if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
    const reference::Window window = window_of(*convolution);
    return {.output = reference::convolution(x, filter, bias, window),
            .input_gradient = reference::convolution_backward_data(x.dims, filter, dy, window),
            .filter_gradient = reference::convolution_backward_filter(x, filter.dims, dy, window),
            .bias_gradient = reference::backward_bias(dy)};
  }
  return {.output = reference::fully_connected(x, filter, bias),
          .input_gradient = reference::fully_connected_backward_data(x.dims, filter, dy),
          .filter_gradient = reference::fully_connected_backward_weights(x, filter.dims, dy),
          .bias_gradient = reference::backward_bias(dy)};
}

struct Case {
  LayerCase layer;
  int threads = 1;
};

std::vector<Case> all_cases() {
  const std::vector<LayerCase> layers{
      convolution_case("first_layer", {3, 3, 13, 11}, {20, {5, 5}, {2, 2}, {2, 2}}),
      convolution_case("one_channel", {2, 1, 12, 12}, {8, {3, 3}, {1, 1}, {1, 1}}),
      convolution_case("even_channels", {2, 16, 9, 10}, {32, {3, 3}, {1, 1}, {1, 1}}),
      convolution_case("odd_channels", {2, 7, 9, 8}, {13, {3, 2}, {1, 2}, {1, 0}}),
      convolution_case("pointwise", {2, 24, 7, 6}, {40, {1, 1}, {1, 1}, {0, 0}}),
      convolution_case("pointwise_strided", {2, 16, 7, 7}, {16, {1, 1}, {2, 2}, {0, 0}}),
      convolution_case("large_window", {1, 3, 23, 23}, {16, {11, 11}, {4, 4}, {2, 2}}),
      convolution_case("volume", {2, 3, 6, 7, 5}, {10, {3, 3, 2}, {1, 2, 1}, {1, 1, 0}}),
      convolution_case("volume_even", {1, 16, 5, 6, 6}, {16, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}}),
      convolution_case("line", {2, 5, 17}, {6, {4}, {3}, {2}}),
      fully_connected_case("connected_matrix", {5, 33}, 10),
      fully_connected_case("connected_even_matrix", {16, 64}, 32),
      fully_connected_case("connected_plane", {3, 20, 5, 4}, 17),
      fully_connected_case("connected_even_plane", {4, 32, 4, 4}, 64),
      fully_connected_case("connected_volume", {2, 6, 3, 2, 4}, 9),
      fully_connected_case("connected_line", {2, 6, 5}, 3)};
  std::vector<Case> cases;
  for (const LayerCase& layer : layers) {
    cases.push_back({layer, 1});
    cases.push_back({layer, 2});
  }
  return cases;
}

class FilterLayerTest : public ::testing::TestWithParam<Case> {
 protected:
  const LayerCase& layer() const { return GetParam().layer; }

  // A harness with all operands set.
  std::unique_ptr<OpHarness> harness(std::size_t shift = 0) {
    auto made = std::make_unique<OpHarness>(*library_, layer(), Mode::kTraining, shift);
    made->set(kX, x_);
    made->set(kDY, dy_);
    made->set(kFilter, filter_);
    made->set(kBias, bias_);
    return made;
  }

  static Dims filter_dims(const LayerCase& layer) {
    Dims dims = layer.inputs[0].dims;
    dims[0] = layer.output.dims[1];
    if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
      std::ranges::copy(convolution->kernel, dims.begin() + 2);
    }
    return dims;
  }

  std::unique_ptr<OpLibrary> library_ = make_cpu_ops({.threads = GetParam().threads});
  Array x_ = random_array(layer().inputs[0].dims, 21);
  Array dy_ = random_array(layer().output.dims, 22);
  Array filter_ = random_array(filter_dims(layer()), 23);
  Array bias_ = random_array({layer().output.dims[1]}, 24);
};

TEST_P(FilterLayerTest, EveryAlgorithmIsWithinTheErrorBound) {
  const auto op = harness();
  const Expected expected = expect_of(layer(), x_, filter_, bias_, dy_);
  for (OpId id = 0; id < op->recipes().size(); ++id) {
    for (std::uint32_t i = 0; i < op->recipe(id).algorithms.size(); ++i) {
      SCOPED_TRACE(op->tape().op(id).name + " " + op->recipe(id).algorithms[i].name);
      op->run(id, {.algorithm = i, .in_place = {}});
      switch (op->recipe(id).direction) {
        case Direction::kForward:
          expect_within_bounds(op->get(kY), expected.output);
          break;
        case Direction::kBackwardData:
          expect_within_bounds(op->get(kDX), expected.input_gradient);
          break;
        case Direction::kBackwardFilter:
          expect_within_bounds(op->get(kDFilter), expected.filter_gradient);
          expect_within_bounds(op->get(kDBias), expected.bias_gradient);
          break;
        case Direction::kUpdate:
          FAIL();
      }
    }
  }
}

TEST_P(FilterLayerTest, RunsAreBitIdenticalAtOtherAddresses) {
  const auto one = harness(0);
  const auto other = harness(3);
  for (OpId id = 0; id < one->recipes().size(); ++id) {
    for (std::uint32_t i = 0; i < one->recipe(id).algorithms.size(); ++i) {
      SCOPED_TRACE(one->tape().op(id).name + " " + one->recipe(id).algorithms[i].name);
      one->run(id, {.algorithm = i, .in_place = {}});
      other->run(id, {.algorithm = i, .in_place = {}});
      for (const Operand& written : one->recipe(id).writes) {
        const auto bytes = one->buffer(written).as<std::byte>();
        EXPECT_TRUE(std::ranges::equal(bytes, other->buffer(written).as<std::byte>()));
      }
    }
  }
}

std::size_t zeros_in(GuardedBuffer& buffer) {
  return static_cast<std::size_t>(std::ranges::count(buffer.as<float>(), 0.0F));
}

TEST_P(FilterLayerTest, PackingIsUndoneByUnpackingAndPadsWithZeros) {
  const auto op = harness();
  expect_equal(op->get(kFilter), filter_);
  expect_equal(op->get(kBias), bias_);
  // No element of the filter is zero: what is zero is padding, and padding is all that is added.
  GuardedBuffer& storage = op->buffer(kFilter);
  EXPECT_EQ(zeros_in(storage), storage.as<float>().size() - filter_.data.size());
}

TEST_P(FilterLayerTest, PaddingStaysZeroInGradientsAndUpdates) {
  const auto op = harness();
  const OpId backward = op->writer(kDFilter);
  GuardedBuffer& gradient = op->buffer(kDFilter);
  const std::size_t padding = gradient.as<float>().size() - filter_.data.size();
  for (std::uint32_t i = 0; i < op->recipe(backward).algorithms.size(); ++i) {
    SCOPED_TRACE(op->recipe(backward).algorithms[i].name);
    op->run(backward, {.algorithm = i, .in_place = {}});
    const Array logical = op->get(kDFilter);
    const auto own_zeros = static_cast<std::size_t>(std::ranges::count(logical.data, 0.0));
    EXPECT_EQ(zeros_in(gradient), padding + own_zeros);
  }
  const std::span<const TensorType> outputs(&layer().output, 1);
  const LayerRecipe recipe =
      library_->catalog().recipe(layer().spec, layer().inputs, outputs, Mode::kTraining);
  OpHarness update(*library_, SgdSpec{0.9F, 0.01F}, recipe.parameters[0]);
  // The update sees storage only, so the forms of the layer's own harness are used.
  std::ranges::copy(op->buffer(kFilter).as<float>(), update.buffer(kFilter).as<float>().begin());
  std::ranges::copy(gradient.as<float>(), update.buffer(kDFilter).as<float>().begin());
  std::ranges::fill(update.buffer(kState).as<float>(), 0.0F);
  update.run(0, {.algorithm = 0, .in_place = {}, .scalars = {.learning_rate = 0.1F}});
  EXPECT_GE(zeros_in(update.buffer(kFilter)), padding);
  EXPECT_GE(zeros_in(update.buffer(kState)), padding);
}

TEST_P(FilterLayerTest, RecipeNamesOperandsInOrder) {
  const auto op = harness();
  const auto recipes = op->recipes();
  ASSERT_EQ(recipes.size(), 3U);
  EXPECT_EQ(recipes[0].reads, (std::vector{kX, kFilter, kBias}));
  EXPECT_EQ(recipes[0].writes, (std::vector{kY}));
  EXPECT_EQ(recipes[1].direction, Direction::kBackwardFilter);
  EXPECT_EQ(recipes[1].reads, (std::vector{kX, kDY}));
  EXPECT_EQ(recipes[1].writes, (std::vector{kDFilter, kDBias}));
  EXPECT_EQ(recipes[2].direction, Direction::kBackwardData);
  EXPECT_EQ(recipes[2].reads, (std::vector{kDY, kFilter}));
  EXPECT_EQ(recipes[2].writes, (std::vector{kDX}));
  for (const OpRecipe& recipe : recipes) {
    EXPECT_TRUE(recipe.may_overwrite.empty());
    std::vector<std::string> names;
    for (const Algorithm& algorithm : recipe.algorithms) {
      EXPECT_FALSE(algorithm.name.starts_with("ref")) << algorithm.name;
      names.push_back(algorithm.name);
    }
    std::ranges::sort(names);
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end()) << "a name repeats";
  }
}

// The parameters of evaluation are those of training.
TEST_P(FilterLayerTest, InferenceHoldsParametersAlike) {
  const std::span<const TensorType> outputs(&layer().output, 1);
  const OpCatalog& catalog = library_->catalog();
  const LayerRecipe training = catalog.recipe(layer().spec, layer().inputs, outputs, Mode::kTraining);
  const LayerRecipe inference = catalog.recipe(layer().spec, layer().inputs, outputs, Mode::kInference);
  EXPECT_TRUE(inference.backward.empty());
  ASSERT_EQ(inference.parameters.size(), training.parameters.size());
  for (std::size_t i = 0; i < training.parameters.size(); ++i) {
    EXPECT_EQ(inference.parameters[i].type, training.parameters[i].type);
    EXPECT_EQ(inference.parameters[i].storage_bytes, training.parameters[i].storage_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FilterLayerTest, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return test_name(test.param.layer.name, test.param.threads);
});

TEST(FilterLayer, RecipeCountsWorkAndInitialises) {
  const auto library = make_cpu_ops({});
  const LayerCase layer = convolution_case("conv", {4, 3, 8, 8}, {16, {3, 3}, {1, 1}, {1, 1}});
  const LayerRecipe recipe =
      library->catalog().recipe(layer.spec, layer.inputs, std::array{layer.output}, Mode::kTraining);
  const double multiply_adds = 4.0 * 16 * 8 * 8 * 3 * 3 * 3;
  EXPECT_EQ(recipe.forward[0].cost.flops, 2 * multiply_adds);
  EXPECT_EQ(recipe.parameters[0].type.dims, (Dims{16, 3, 3, 3}));
  EXPECT_EQ(recipe.parameters[0].initializer, Initializer::kHeNormal);
  EXPECT_EQ(recipe.parameters[0].fan_in, 27);
  EXPECT_EQ(recipe.parameters[1].initializer, Initializer::kZero);
  const double operands =
      4.0 * (4 * 3 * 64 + 4 * 16 * 64 + 16) + static_cast<double>(recipe.parameters[0].storage_bytes);
  EXPECT_EQ(recipe.forward[0].cost.bytes, operands);
}

}  // namespace
}  // namespace vdnn::testing
