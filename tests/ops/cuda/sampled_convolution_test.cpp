#include "src/ops/cuda/sampled_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "src/base/random.h"
#include "tests/ops/channels_last.h"
#include "tests/ops/reference_windows.h"

namespace vdnn::cuda::sampled_convolution_test {
namespace {

constexpr std::array kDirections{Direction::kForward, Direction::kBackwardData, Direction::kBackwardFilter};

// One to three spatial dimensions, with strides, padding, dilation and groups.
std::vector<ops::Convolution> convolutions() {
  return {{.batch = 2,
           .input_channels = 3,
           .output_channels = 4,
           .input = {5, 6},
           .output = {5, 6},
           .kernel = {3, 3},
           .stride = {1, 1},
           .padding = {1, 1},
           .dilation = {}},
          {.batch = 1,
           .input_channels = 4,
           .output_channels = 6,
           .input = {8, 7},
           .output = {3, 2},
           .kernel = {3, 2},
           .stride = {2, 3},
           .padding = {0, 1},
           .dilation = {1, 3},
           .groups = 2},
          {.batch = 2,
           .input_channels = 2,
           .output_channels = 3,
           .input = {4, 3, 5},
           .output = {2, 3, 5},
           .kernel = {3, 1, 3},
           .stride = {2, 1, 1},
           .padding = {1, 0, 1},
           .dilation = {}},
          {.batch = 3,
           .input_channels = 2,
           .output_channels = 2,
           .input = {9},
           .output = {5},
           .kernel = {1},
           .stride = {2},
           .padding = {0},
           .dilation = {},
           .groups = 2}};
}

reference::Array random_array(const Dims& dims, std::uint64_t seed) {
  SplitMix64 random(seed);
  reference::Array array(dims);
  std::ranges::generate(array.data, [&] { return static_cast<double>(random.symmetric()); });
  return array;
}

// The expected values of all elements of a pass, in memory order.
struct Expected {
  std::vector<float> value;
  std::vector<float> products;
};

Expected expected(const EngineQuestion& question, const reference::Array& first,
                  const reference::Array& second) {
  const ops::Convolution& c = question.convolution;
  const ops::ConvolutionDims dims = ops::dims_of(c);
  reference::Array value(tensors_of(question).result);
  reference::Array count(value.dims);
  for (const reference::Product& each :
       reference::convolution(dims.x, dims.filter, {c.kernel, c.stride, c.padding, c.dilation})) {
    std::size_t result = each.weight;
    double product = 0;
    if (question.direction == Direction::kForward) {
      result = each.output;
      product = first.data[each.input] * second.data[each.weight];
    } else if (question.direction == Direction::kBackwardData) {
      result = each.input;
      product = first.data[each.output] * second.data[each.weight];
    } else {
      product = first.data[each.input] * second.data[each.output];
    }
    value.data[result] += product;
    count.data[result] += 1;
  }
  return {testing::to_channels_last(value), testing::to_channels_last(count)};
}

TEST(SampledConvolution, EveryElementIsThatOfTheReference) {
  for (const ops::Convolution& convolution : convolutions()) {
    for (const Direction direction : kDirections) {
      const EngineQuestion question{.convolution = convolution, .direction = direction};
      SCOPED_TRACE(to_string(question));
      const PassTensors tensors = tensors_of(question);
      const reference::Array first = random_array(tensors.first, 1);
      const reference::Array second = random_array(tensors.second, 2);
      const std::vector<float> first_stored = testing::to_channels_last(first);
      const std::vector<float> second_stored = testing::to_channels_last(second);
      const Expected all = expected(question, first, second);
      std::uint64_t longest = 0;
      for (std::uint64_t element = 0; element < all.value.size(); ++element) {
        const SampledElement sampled =
            sample_convolution(question, element, {.values = first_stored}, {.values = second_stored});
        EXPECT_EQ(sampled.element, element);
        EXPECT_NEAR(sampled.value, static_cast<double>(all.value[element]), 1e-6);
        EXPECT_EQ(static_cast<double>(sampled.products), static_cast<double>(all.products[element]));
        EXPECT_EQ(sampled.squares > 0, sampled.products > 0);
        longest = std::max(longest, sampled.products);
      }
      EXPECT_LE(longest, longest_sum(question));
    }
  }
}

TEST(SampledConvolution, ValuesRepeatFromTheirPhase) {
  const std::vector<float> values{1, 2, 3};
  const RepeatedValues repeated{.values = values, .phase = 2};
  EXPECT_EQ(repeated.at(0), 3);
  EXPECT_EQ(repeated.at(1), 1);
  EXPECT_EQ(repeated.at(4), 1);
}

TEST(SampledConvolution, CornersAreAmongTheSamples) {
  const Dims dims{2, 3, 4, 5};
  const std::vector<std::uint64_t> elements = sampled_elements(dims, 40, 7);
  EXPECT_EQ(elements.size(), 40U);
  EXPECT_EQ(elements, sampled_elements(dims, 40, 7));
  EXPECT_NE(elements, sampled_elements(dims, 40, 8));
  EXPECT_LT(std::ranges::max(elements), element_count(dims));
  const std::set<std::uint64_t> found(elements.begin(), elements.end());
  for (const std::uint64_t sample : {0, 1}) {
    for (const std::uint64_t row : {0, 3}) {
      for (const std::uint64_t column : {0, 4}) {
        for (const std::uint64_t channel : {0, 2}) {
          EXPECT_TRUE(found.contains(((sample * 4 + row) * 5 + column) * 3 + channel));
        }
      }
    }
  }
  // All corners, even if fewer elements are requested. A dimension with extent one has only one end.
  EXPECT_EQ(sampled_elements(dims, 1, 7).size(), 16U);
  EXPECT_EQ(sampled_elements({1, 3, 1, 5}, 1, 7).size(), 4U);
}

}  // namespace
}  // namespace vdnn::cuda::sampled_convolution_test
