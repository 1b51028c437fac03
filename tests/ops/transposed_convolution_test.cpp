// Properties of transposed convolutions only. filter_layer_test.cpp tests their passes together with other
// layers that have filters.

#include <gtest/gtest.h>

#include <array>

#include "tests/ops/layer_cases.h"
#include "vdnn/cpu_ops.h"

namespace vdnn::testing::transposed_convolution_test {
namespace {

LayerRecipe training_recipe(const TransposedConvolutionSpec& spec) {
  const LayerCase layer = transposed_convolution_case("up", {2, 6, 5, 7}, spec);
  return make_cpu_ops({})->catalog().recipe(layer.spec, layer.inputs, std::array{layer.output},
                                            Mode::kTraining);
}

TEST(TransposedConvolution, RecipeCountsTheProductsOfEachInput) {
  const LayerRecipe recipe = training_recipe({4, {2, 2}, {2, 2}, {0, 0}});
  ASSERT_EQ(recipe.parameters.size(), 2U);
  EXPECT_EQ(recipe.parameters[0].type.dims, (Dims{4, 6, 2, 2}));
  EXPECT_EQ(recipe.parameters[1].type.dims, (Dims{4}));
  EXPECT_EQ(recipe.forward[0].cost.flops, 2.0 * (2 * 6 * 5 * 7) * (4 * 2 * 2));
}

// He et al.'s initialisation keeps the variance only if fan-in is the number of products that one output
// sums.
TEST(TransposedConvolution, FanInIsWhatOneOutputSums) {
  EXPECT_EQ(training_recipe({4, {2, 2}, {2, 2}, {0, 0}}).parameters[0].fan_in, 6);
  EXPECT_EQ(training_recipe({4, {4, 4}, {2, 2}, {1, 1}}).parameters[0].fan_in, 24);
  EXPECT_EQ(training_recipe({4, {3, 3}, {1, 1}, {1, 1}}).parameters[0].fan_in, 54);
  EXPECT_EQ(training_recipe({4, {1, 1}, {4, 4}, {0, 0}}).parameters[0].fan_in, 1);
}

// The expected values are computed by hand: one input is 10, and its product with each weight of its
// channel's window, plus the bias, is one output.
TEST(TransposedConvolution, SpreadsAnInputByItsFilter) {
  const auto library = make_cpu_ops({});
  OpHarness op(*library, transposed_convolution_case("up", {1, 2, 2, 2}, {1, {2, 2}, {2, 2}, {0, 0}}));
  reference::Array filter({1, 2, 2, 2});
  filter.data = {1, 2, 3, 4, 5, 6, 7, 8};
  reference::Array bias(Dims{1});
  bias.data = {0.5};
  reference::Array x({1, 2, 2, 2});
  x.data[4 + 1] = 10;  // channel 1, row 0, column 1
  op.set(kFilter, filter);
  op.set(kBias, bias);
  op.set(kX, x);
  op.run(0);
  reference::Array expected({1, 1, 4, 4});
  expected.data = {0.5, 0.5, 50.5, 60.5, 0.5, 0.5, 70.5, 80.5,  //
                   0.5, 0.5, 0.5,  0.5,  0.5, 0.5, 0.5,  0.5};
  expect_equal(op.get(kY), expected);
}

}  // namespace
}  // namespace vdnn::testing::transposed_convolution_test
