#include "tests/ops/reference_windows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"

namespace vdnn::testing {
namespace {

using reference::Array;
using reference::FilterPasses;
using reference::Product;
using reference::Window;

struct FilterCase {
  std::vector<Product> products;
  Dims input;
  Dims filter;
  Dims output;
};

void expect_filter_gradients(const FilterCase& layer) {
  const Array x = random_array(layer.input, 1);
  const Array filter = random_array(layer.filter, 2);
  const Array bias = random_array({layer.filter[0]}, 3);
  const Array dy = random_array(layer.output, 4);
  const FilterPasses passes =
      reference::filter_passes(layer.products, {.x = x, .filter = filter, .bias = bias, .dy = dy});
  const auto output = [&](const Array& some_x, const Array& some_filter, const Array& some_bias) {
    return dot(reference::filter_passes(layer.products,
                                        {.x = some_x, .filter = some_filter, .bias = some_bias, .dy = dy})
                   .output.value,
               dy);
  };
  expect_gradient(
      x, [&](const Array& moved) { return output(moved, filter, bias); }, passes.input_gradient.value);
  expect_gradient(
      filter, [&](const Array& moved) { return output(x, moved, bias); }, passes.filter_gradient.value);
  expect_gradient(
      bias, [&](const Array& moved) { return output(x, filter, moved); }, passes.bias_gradient.value);
}

struct WindowCase {
  const char* name;
  Dims input;
  Window window;
};

class ReferenceWindow : public ::testing::TestWithParam<WindowCase> {
 protected:
  static Dims filter_dims(std::int64_t filters, std::int64_t channels) {
    Dims dims{filters, channels};
    const Dims& kernel = GetParam().window.kernel;
    dims.insert(dims.end(), kernel.begin(), kernel.end());
    return dims;
  }
};

TEST_P(ReferenceWindow, ConvolutionGradientsAreDerivatives) {
  const auto& [name, input, window] = GetParam();
  const Dims filter = filter_dims(3, input[1]);
  expect_filter_gradients({.products = reference::convolution(input, filter, window),
                           .input = input,
                           .filter = filter,
                           .output = reference::window_output(input, 3, window)});
}

TEST_P(ReferenceWindow, TransposedConvolutionGradientsAreDerivatives) {
  const auto& [name, input, window] = GetParam();
  const Dims filter = filter_dims(3, input[1]);
  expect_filter_gradients({.products = reference::transposed_convolution(input, filter, window),
                           .input = input,
                           .filter = filter,
                           .output = reference::transposed_output(input, 3, window)});
}

// By definition, x is a gradient of the convolution's output and y one of its input.
TEST_P(ReferenceWindow, TransposedConvolutionIsTheDataGradientOfAConvolution) {
  const auto& [name, input, window] = GetParam();
  const Dims output = reference::transposed_output(input, 3, window);
  const Dims filter = filter_dims(input[1], 3);
  const Array x = random_array(input, 5);
  const Array weights = random_array(filter, 6);
  // K x C x space, where K counts output channels.
  Array swapped(filter_dims(3, input[1]));
  const std::size_t taps = weights.data.size() / static_cast<std::size_t>(filter[0] * filter[1]);
  for (std::size_t i = 0; i < weights.data.size(); ++i) {
    const std::size_t c = i / taps / 3;
    const std::size_t k = i / taps % 3;
    swapped.data[(k * static_cast<std::size_t>(input[1]) + c) * taps + i % taps] = weights.data[i];
  }
  const Array unused_y(output);
  const FilterPasses gradient =
      reference::filter_passes(reference::convolution(output, filter, window),
                               {.x = unused_y, .filter = weights, .bias = {}, .dy = x});
  const FilterPasses transposed =
      reference::filter_passes(reference::transposed_convolution(input, swapped.dims, window),
                               {.x = x, .filter = swapped, .bias = {}, .dy = unused_y});
  ASSERT_EQ(transposed.output.value.dims, gradient.input_gradient.value.dims);
  for (std::size_t i = 0; i < unused_y.data.size(); ++i) {
    ASSERT_NEAR(transposed.output.value.data[i], gradient.input_gradient.value.data[i], 1e-12);
  }
}

TEST_P(ReferenceWindow, PoolingGradientsAreDerivatives) {
  const auto& [name, input, window] = GetParam();
  const Array x = distinct_array(input, 5);
  const Array dy = random_array(reference::window_output(input, input[1], window), 6);
  expect_gradient(
      x, [&, &shape = window](const Array& moved) { return dot(reference::max_pooling(moved, shape), dy); },
      reference::max_pooling_backward(x, dy, window).value);
  expect_gradient(
      x,
      [&, &shape = window](const Array& moved) {
        return dot(reference::average_pooling(moved, shape).value, dy);
      },
      reference::average_pooling_backward(input, dy, window).value);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ReferenceWindow,
    ::testing::Values(WindowCase{"line", {2, 2, 7}, {{3}, {2}, {1}, {}}},
                      WindowCase{"plane", {2, 2, 5, 4}, {{3, 2}, {2, 1}, {1, 0}, {}}},
                      WindowCase{"plane_uneven_padding", {1, 3, 6, 5}, {{3, 4}, {1, 3}, {2, 1}, {}}},
                      WindowCase{"volume", {1, 2, 4, 3, 5}, {{2, 3, 3}, {2, 1, 2}, {0, 1, 1}, {}}}),
    [](const auto& test) { return test.param.name; });

TEST(ReferenceWindows, DilatedAndGroupedConvolutionGradientsAreDerivatives) {
  const Dims input{2, 4, 6, 5};
  const Window window{{3, 2}, {1, 2}, {2, 1}, {2, 3}};
  for (const std::int64_t group_channels : {4, 2, 1}) {
    const Dims filter{4, group_channels, 3, 2};
    expect_filter_gradients({.products = reference::convolution(input, filter, window),
                             .input = input,
                             .filter = filter,
                             .output = reference::window_output(input, 4, window)});
  }
}

TEST(ReferenceWindows, FullyConnectedGradientsAreDerivatives) {
  const Dims input{3, 2, 2, 3};
  const Dims weights{4, 2, 2, 3};
  expect_filter_gradients({.products = reference::fully_connected(input, weights),
                           .input = input,
                           .filter = weights,
                           .output = {3, 4}});
}

// The expected values below are computed by hand, since forward and backward could share a mistake.

Array array_of(const Dims& dims, std::vector<double> data) {
  Array array(dims);
  array.data = std::move(data);
  return array;
}

reference::Sums output_of(const std::vector<Product>& products, const Array& x, const Array& filter,
                          const Array& bias, const Dims& output) {
  return reference::filter_passes(products, {.x = x, .filter = filter, .bias = bias, .dy = Array(output)})
      .output;
}

TEST(ReferenceWindows, ConvolutionIsCrossCorrelation) {
  const Array x = array_of({1, 1, 1, 3}, {1, 2, 4});
  const Array filter = array_of({1, 1, 1, 2}, {10, 1});
  const Window window{{1, 2}, {1, 1}, {0, 1}, {}};
  const Dims output = reference::window_output(x.dims, 1, window);
  EXPECT_EQ(output, (Dims{1, 1, 1, 4}));
  const reference::Sums y =
      output_of(reference::convolution(x.dims, filter.dims, window), x, filter, array_of({1}, {0.5}), output);
  EXPECT_EQ(y.value.data, (std::vector<double>{1.5, 12.5, 24.5, 40.5}));
  EXPECT_EQ(y.terms, (std::vector<std::int64_t>{2, 3, 3, 2}));
}

TEST(ReferenceWindows, DilationSpreadsTheWindow) {
  const Array x = array_of({1, 1, 5}, {1, 2, 4, 8, 16});
  const Array filter = array_of({1, 1, 2}, {10, 1});
  const Window window{{2}, {1}, {0}, {3}};
  const Dims output = reference::window_output(x.dims, 1, window);
  EXPECT_EQ(output, (Dims{1, 1, 2}));
  EXPECT_EQ(output_of(reference::convolution(x.dims, filter.dims, window), x, filter, {}, output).value.data,
            (std::vector<double>{18, 36}));
}

TEST(ReferenceWindows, GroupsSeeTheirOwnChannels) {
  const Array x = array_of({1, 4, 1}, {1, 2, 4, 8});
  const Array filter = array_of({4, 2, 1}, {1, 10, 100, 1000, 1, 10, 100, 1000});
  const Window window{{1}, {1}, {0}, {}};
  EXPECT_EQ(
      output_of(reference::convolution(x.dims, filter.dims, window), x, filter, {}, {1, 4, 1}).value.data,
      (std::vector<double>{21, 2100, 84, 8400}));
}

TEST(ReferenceWindows, TransposedConvolutionSpreadsEachInput) {
  const Array x = array_of({1, 1, 2}, {1, 10});
  const Array filter = array_of({1, 1, 3}, {1, 2, 3});
  const Window window{{3}, {2}, {0}, {}};
  EXPECT_EQ(
      output_of(reference::transposed_convolution(x.dims, filter.dims, window), x, filter, {}, {1, 1, 5})
          .value.data,
      (std::vector<double>{1, 2, 13, 20, 30}));
}

TEST(ReferenceWindows, AveragesDoNotCountPadding) {
  const Array x = array_of({1, 1, 3}, {1, 2, 6});
  EXPECT_EQ(reference::average_pooling(x, {{2}, {1}, {1}, {}}).value.data,
            (std::vector<double>{1, 1.5, 4, 6}));
}

TEST(ReferenceWindows, UpsamplingRepeatsOrInterpolatesBetweenHalfPixelCentres) {
  const Array x = array_of({1, 1, 2}, {0, 12});
  EXPECT_EQ(reference::upsampling(x, {UpsamplingMode::kNearest, {3}}).value.data,
            (std::vector<double>{0, 0, 0, 12, 12, 12}));
  EXPECT_EQ(reference::upsampling(x, {UpsamplingMode::kLinear, {2}}).value.data,
            (std::vector<double>{0, 3, 9, 12}));
  const reference::Sums thirds = reference::upsampling(x, {UpsamplingMode::kLinear, {3}});
  const std::vector<double> expected{0, 0, 4, 8, 12, 12};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(thirds.value.data[i], expected[i], 1e-12) << i;
  }
}

TEST(ReferenceWindows, UpsamplingGradientsAreDerivatives) {
  const std::vector<std::pair<Dims, Dims>> shapes{
      {{2, 3, 5}, {3}}, {{1, 2, 3, 4}, {2, 3}}, {{1, 2, 2, 3, 1}, {2, 1, 4}}};
  for (const auto& [input, factors] : shapes) {
    for (const UpsamplingMode mode : {UpsamplingMode::kNearest, UpsamplingMode::kLinear}) {
      const UpsamplingSpec spec{mode, factors};
      const Array x = random_array(input, 7);
      const Array dy = random_array(reference::upsampling_output(input, factors), 8);
      expect_gradient(
          x, [&](const Array& moved) { return dot(reference::upsampling(moved, spec).value, dy); },
          reference::upsampling_backward(input, dy, spec).value);
    }
  }
}

TEST(ReferenceWindows, LrnDividesByTheChannelsAround) {
  const Array x = array_of({1, 3, 1}, {1, 2, 3});
  const reference::Sums y = reference::lrn(x, {.size = 3, .alpha = 3, .beta = 1, .k = 1});
  const std::vector<double> expected{1.0 / 6, 2.0 / 15, 3.0 / 14};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(y.value.data[i], expected[i], 1e-12) << i;
  }
}

TEST(ReferenceWindows, LrnGradientIsItsDerivative) {
  for (const LrnSpec& spec : {LrnSpec{.size = 5, .alpha = 0.5F, .beta = 0.75F, .k = 2},
                              LrnSpec{.size = 3, .alpha = 1, .beta = 0.5F, .k = 1},
                              LrnSpec{.size = 1, .alpha = 2, .beta = 1, .k = 1}}) {
    const Array x = random_array({2, 4, 3, 2}, 9);
    const Array dy = random_array(x.dims, 10);
    expect_gradient(
        x, [&](const Array& moved) { return dot(reference::lrn(moved, spec).value, dy); },
        reference::lrn_backward(x, dy, spec).value);
  }
}

}  // namespace
}  // namespace vdnn::testing
