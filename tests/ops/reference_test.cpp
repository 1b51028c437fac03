// The reference judges oneDNN; what judges the reference is the definition of a derivative: its backward
// functions against central differences of its forward functions.

#include "tests/ops/reference.h"

#include <gtest/gtest.h>

#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"

namespace vdnn::testing {
namespace {

using reference::Array;
using reference::Window;

struct WindowCase {
  const char* name;
  Dims input;
  Window window;
};

class ReferenceWindow : public ::testing::TestWithParam<WindowCase> {};

TEST_P(ReferenceWindow, ConvolutionGradientsAreDerivatives) {
  const Dims& input = GetParam().input;
  const Window& window = GetParam().window;
  Dims filter_dims{3, input[1]};
  filter_dims.insert(filter_dims.end(), window.kernel.begin(), window.kernel.end());
  const Array x = random_array(input, 1);
  const Array filter = random_array(filter_dims, 2);
  const Array bias = random_array({3}, 3);
  const Array dy = random_array(reference::window_output(input, 3, window), 4);
  expect_gradient(
      x,
      [&](const Array& moved) { return dot(reference::convolution(moved, filter, bias, window).value, dy); },
      reference::convolution_backward_data(input, filter, dy, window).value);
  expect_gradient(
      filter,
      [&](const Array& moved) { return dot(reference::convolution(x, moved, bias, window).value, dy); },
      reference::convolution_backward_filter(x, filter_dims, dy, window).value);
  expect_gradient(
      bias,
      [&](const Array& moved) { return dot(reference::convolution(x, filter, moved, window).value, dy); },
      reference::backward_bias(dy).value);
}

TEST_P(ReferenceWindow, PoolingGradientsAreDerivatives) {
  const Dims& input = GetParam().input;
  const Window& window = GetParam().window;
  const Array x = distinct_array(input, 5);
  const Array dy = random_array(reference::window_output(input, input[1], window), 6);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::max_pooling(moved, window), dy); },
      reference::max_pooling_backward(x, dy, window).value);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::average_pooling(moved, window).value, dy); },
      reference::average_pooling_backward(input, dy, window).value);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ReferenceWindow,
    ::testing::Values(WindowCase{"line", {2, 2, 7}, {{3}, {2}, {1}}},
                      WindowCase{"plane", {2, 2, 5, 4}, {{3, 2}, {2, 1}, {1, 0}}},
                      WindowCase{"plane_uneven_padding", {1, 3, 6, 5}, {{3, 4}, {1, 3}, {2, 1}}},
                      WindowCase{"volume", {1, 2, 4, 3, 5}, {{2, 3, 3}, {2, 1, 2}, {0, 1, 1}}}),
    [](const auto& test) { return test.param.name; });

// By hand: what a shared mistake in forward and backward would not show.
TEST(Reference, ConvolutionIsCrossCorrelation) {
  Array x({1, 1, 1, 3});
  x.data = {1, 2, 4};
  Array filter({1, 1, 1, 2});
  filter.data = {10, 1};
  Array bias(Dims{1});
  bias.data = {0.5};
  const reference::Sums y = reference::convolution(x, filter, bias, {{1, 2}, {1, 1}, {0, 1}});
  EXPECT_EQ(y.value.dims, (Dims{1, 1, 1, 4}));
  EXPECT_EQ(y.value.data, (std::vector<double>{1.5, 12.5, 24.5, 40.5}));
  EXPECT_EQ(y.terms, (std::vector<std::int64_t>{2, 3, 3, 2}));
}

TEST(Reference, AveragesDoNotCountPadding) {
  Array x({1, 1, 3});
  x.data = {1, 2, 6};
  EXPECT_EQ(reference::average_pooling(x, {{2}, {1}, {1}}).value.data, (std::vector<double>{1, 1.5, 4, 6}));
}

TEST(Reference, FullyConnectedGradientsAreDerivatives) {
  const Dims input{3, 2, 2, 3};
  const Array x = random_array(input, 7);
  const Array weights = random_array({4, 2, 2, 3}, 8);
  const Array bias = random_array({4}, 9);
  const Array dy = random_array({3, 4}, 10);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::fully_connected(moved, weights, bias).value, dy); },
      reference::fully_connected_backward_data(input, weights, dy).value);
  expect_gradient(
      weights, [&](const Array& moved) { return dot(reference::fully_connected(x, moved, bias).value, dy); },
      reference::fully_connected_backward_weights(x, weights.dims, dy).value);
  expect_gradient(
      bias, [&](const Array& moved) { return dot(reference::fully_connected(x, weights, moved).value, dy); },
      reference::backward_bias(dy).value);
}

TEST(Reference, ElementwiseGradientsAreDerivatives) {
  const Array x = distinct_array({3, 4, 5}, 11);
  const Array other = random_array({3, 4, 5}, 12);
  const Array dy = random_array({3, 4, 5}, 13);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::relu(moved), dy); },
      reference::relu_backward(reference::relu(x), dy));
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::add(moved, other).value, dy); }, dy);
}

TEST(Reference, SoftmaxCrossEntropyGradientIsItsDerivative) {
  const Array logits = random_array({5, 4}, 14);
  for (const std::vector<std::int32_t>& targets :
       {std::vector<std::int32_t>{0, 3, 1, 2, 2}, {-1, 3, -7, 0, 1}, {-1, -1, -1, -1, -1}}) {
    expect_gradient(
        logits, [&](const Array& moved) { return reference::softmax_cross_entropy(moved, targets).mean; },
        reference::softmax_cross_entropy_backward(logits, targets));
  }
}

}  // namespace
}  // namespace vdnn::testing
