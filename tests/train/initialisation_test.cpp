#include "vdnn/initialisation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_catalog.h"
#include "vdnn/network.h"

namespace vdnn::initialisation_test {
namespace {

using Parameters = std::vector<std::vector<float>>;

// Two convolutions whose filters have the same shape, and a classifier; more layers on request.
std::shared_ptr<const Tape> tape(bool deeper = false) {
  const ConvolutionSpec same{.filters = 32, .kernel = {5, 5}, .stride = {1, 1}, .padding = {2, 2}};
  NetworkBuilder net("init", {2, 32, 8, 8});
  Tensor x = net.relu("relu1", net.convolution("conv1", net.input(), same));
  x = net.relu("relu2", net.convolution("conv2", x, same));
  if (deeper) {
    x = net.relu("relu3", net.convolution("conv3", x, same));
  }
  net.softmax_cross_entropy("loss", net.fully_connected("logits", x, {.outputs = 10}));
  return lower_to_tape(std::move(net).build(), fakes::FakeCatalog(),
                       {.optimizer = SgdSpec{.momentum = 0.9F}});
}

// Parameters are in order of creation: filter and bias of each layer.
constexpr std::size_t kFirstFilter = 0;
constexpr std::size_t kFirstBias = 1;
constexpr std::size_t kSecondFilter = 2;
constexpr std::size_t kLogitsFilter = 4;

struct Moments {
  double mean = 0;
  double variance = 0;
  double beyond_one_deviation = 0;  // the fraction of values further from 0 than `deviation`
};

Moments moments(const std::vector<float>& values, double deviation) {
  Moments result;
  const auto count = static_cast<double>(values.size());
  for (const float value : values) {
    result.mean += value / count;
    result.beyond_one_deviation += (std::abs(value) > deviation ? 1 : 0) / count;
  }
  for (const float value : values) {
    result.variance += (value - result.mean) * (value - result.mean) / count;
  }
  return result;
}

// Expects moments within five standard errors of a normal distribution of mean 0. A wrong formula is further
// off. A right one fails for about one seed in a million, and the seed is fixed.
void expect_normal(const std::vector<float>& values, double deviation) {
  constexpr double kErrors = 5;
  constexpr double kBeyondOne = 0.31731;
  const auto count = static_cast<double>(values.size());
  const Moments found = moments(values, deviation);
  const double variance = deviation * deviation;
  EXPECT_NEAR(found.mean, 0, kErrors * deviation / std::sqrt(count));
  EXPECT_NEAR(found.variance, variance, kErrors * variance * std::sqrt(2 / count));
  EXPECT_NEAR(found.beyond_one_deviation, kBeyondOne,
              kErrors * std::sqrt(kBeyondOne * (1 - kBeyondOne) / count));
}

TEST(Initialisation, FiltersAreHeNormal) {
  const Parameters parameters = initial_parameters(*tape(), 1);
  const double fan_in = 32 * 5 * 5;
  ASSERT_EQ(parameters[kFirstFilter].size(), 32U * 32 * 5 * 5);
  expect_normal(parameters[kFirstFilter], std::sqrt(2 / fan_in));
  expect_normal(parameters[kSecondFilter], std::sqrt(2 / fan_in));
}

TEST(Initialisation, LogitsStartSmall) {
  const Parameters parameters = initial_parameters(*tape(), 1);
  ASSERT_EQ(parameters[kLogitsFilter].size(), 10U * 32 * 8 * 8);
  expect_normal(parameters[kLogitsFilter], 0.01);
}

TEST(Initialisation, BiasesAreZero) {
  const std::vector<float> bias = initial_parameters(*tape(), 1)[kFirstBias];
  EXPECT_EQ(bias, std::vector<float>(32, 0.0F));
}

TEST(Initialisation, IsAFunctionOfTheSeed) {
  const Parameters first = initial_parameters(*tape(), 1);
  EXPECT_EQ(first, initial_parameters(*tape(), 1));
  EXPECT_NE(first, initial_parameters(*tape(), 2));
}

TEST(Initialisation, ParametersOfOneShapeAreIndependent) {
  const Parameters parameters = initial_parameters(*tape(), 1);
  const std::vector<float>& a = parameters[kFirstFilter];
  const std::vector<float>& b = parameters[kSecondFilter];
  double product = 0;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    squares += static_cast<double>(a[i]) * a[i];
  }
  EXPECT_NEAR(product / squares, 0, 5 / std::sqrt(static_cast<double>(a.size())));
}

TEST(Initialisation, MoreLayersBehindChangeNothingBefore) {
  const Parameters shallow = initial_parameters(*tape(), 1);
  const Parameters deep = initial_parameters(*tape(true), 1);
  ASSERT_GT(deep.size(), shallow.size());
  for (std::size_t index = 0; index < kLogitsFilter; ++index) {
    EXPECT_EQ(shallow[index], deep[index]) << "parameter " << index;
  }
}

// python3 -c "import struct, hashlib; print(hashlib.sha256(struct.pack('<5f', 1, -2.5, 0, 3.25,
// -0.0)).hexdigest())"
TEST(ParametersSha256, IsOfLittleEndianNumbersInOrder) {
  const std::string expected = "f947079e43a593365230168145dd486e2541db9fcc873f9a320fccf3ac23639d";
  EXPECT_EQ(parameters_sha256({{1.0F, -2.5F}, {0.0F, 3.25F, -0.0F}}), expected);
  EXPECT_EQ(parameters_sha256({{1.0F, -2.5F, 0.0F, 3.25F, -0.0F}}), expected)
      << "borders between parameters do not matter";
  EXPECT_NE(parameters_sha256({{0.0F, 3.25F, -0.0F}, {1.0F, -2.5F}}), expected) << "order does";
  EXPECT_NE(parameters_sha256({{1.0F, -2.5F}, {0.0F, 3.25F, 0.0F}}), expected) << "every bit matters";
}

}  // namespace
}  // namespace vdnn::initialisation_test
