#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_optimizers.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::gradient_norm_test {
namespace {

using reference::Array;

constexpr double kUnitRoundoff = 0x1p-24;
constexpr Operand kNorm{OperandRole::kGradientNorm, 0};

Operand gradient_of(std::uint32_t parameter) {
  return {OperandRole::kParameterGradient, parameter};
}

ParameterRecipe parameter_of(const Dims& dims) {
  const TensorType type{.dims = dims};
  return {.name = "parameter", .type = type, .storage_bytes = type.bytes()};
}

// Shapes of any rank; the kernels sum some of them in one piece and others in several.
std::vector<Dims> shapes() {
  return {{1}, {37}, {16'384}, {16'385}, {5, 3, 3, 3}, {40'001}};
}

std::vector<ParameterRecipe> parameters_of(const std::vector<Dims>& dims) {
  std::vector<ParameterRecipe> parameters;
  std::ranges::transform(dims, std::back_inserter(parameters), parameter_of);
  return parameters;
}

class GradientNormTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  // Returns the norm and the scale of these gradients.
  std::vector<double> run(const std::vector<Array>& gradients, float max_norm) const {
    std::vector<Dims> dims;
    std::ranges::transform(gradients, std::back_inserter(dims), [](const Array& each) { return each.dims; });
    OpHarness op(*library_, GradientNormSpec{.max_norm = max_norm}, parameters_of(dims));
    for (std::uint32_t i = 0; i < gradients.size(); ++i) {
      op.set(gradient_of(i), gradients[i]);
    }
    op.run(0);
    return op.get(kNorm).data;
  }

  static std::vector<Array> random_gradients() {
    std::vector<Array> gradients;
    for (const Dims& dims : shapes()) {
      gradients.push_back(random_array(dims, 191 + static_cast<std::uint32_t>(gradients.size())));
    }
    return gradients;
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

// The op sums in double and rounds only the stored results.
TEST_P(GradientNormTest, NormAndScaleAreThoseOfTheReference) {
  constexpr double kDoubleNoise = 1e-12;  // relative
  const std::vector<Array> gradients = random_gradients();
  const double norm = reference::gradient_norm(gradients);
  for (const float max_norm : {0.01F, 1.0F, 150.0F}) {
    const std::vector<double> got = run(gradients, max_norm);
    EXPECT_NEAR(got[0], norm, (kUnitRoundoff + kDoubleNoise) * norm);
    const double scale = static_cast<double>(max_norm) / (norm + 1e-6);
    ASSERT_LT(scale, 1);
    EXPECT_NEAR(got[1], scale, (kUnitRoundoff + kDoubleNoise) * scale);
  }
}

// On `cuda` these are more gradients than one launch can sum; some have one piece and others several.
TEST_P(GradientNormTest, ManyGradientsAreOneNorm) {
  std::vector<Array> gradients;
  for (std::uint32_t i = 0; i < 37; ++i) {
    gradients.push_back(random_array({i % 5 == 4 ? 9'001 : 3 + i}, 400 + i));
  }
  const double norm = reference::gradient_norm(gradients);
  EXPECT_NEAR(run(gradients, 1)[0], norm, kUnitRoundoff * norm * (1 + 1e-4));
}

// The norm is about as small as the constant that prevents a division by zero: 2^-20 / (5 2^-20 + 1e-6).
TEST_P(GradientNormTest, SmallNormsAreNotDividedByAlone) {
  Array gradient({2});
  gradient.data = {0x3p-20, 0x4p-20};
  const double scale = 0x1p-20 / (0x5p-20 + 1e-6);
  EXPECT_NEAR(run({gradient}, 0x1p-20F)[1], scale, kUnitRoundoff * scale);
}

TEST_P(GradientNormTest, GradientsWithinTheNormAreLeftAlone) {
  Array gradient({2});
  gradient.data = {3, -4};
  EXPECT_EQ(run({gradient}, 5.25F), (std::vector<double>{5, 1}));
  EXPECT_EQ(run({gradient}, 1e30F), (std::vector<double>{5, 1}));
  EXPECT_EQ(run({Array({3}), Array({1})}, 1), (std::vector<double>{0, 1}));
}

TEST_P(GradientNormTest, ThreadsDoNotChangeABit) {
  const std::vector<double> here = run(random_gradients(), 1);
  library_ = GetParam().make_plain();
  EXPECT_EQ(here, run(random_gradients(), 1));
}

TEST_P(GradientNormTest, LargeGradientsDoNotOverflow) {
  Array gradient({2});
  gradient.data = {0x3p100, 0x4p100};
  const std::vector<double> got = run({gradient}, 0x5p0F);
  EXPECT_EQ(got[0], 0x5p100);
  EXPECT_EQ(got[1], 0x1p-100);
}

// A divergence must show: clipping must not turn a gradient that is not finite into a small one.
TEST_P(GradientNormTest, WhatIsNotFiniteMakesTheScaleNan) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    for (const std::size_t which : {0U, 3U, 5U}) {
      std::vector<Array> gradients = random_gradients();
      gradients[which].data.back() = bad;
      const std::vector<double> got = run(gradients, 1);
      EXPECT_FALSE(std::isfinite(got[0]));
      EXPECT_TRUE(std::isnan(got[1]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, GradientNormTest, ::testing::ValuesIn(tested_libraries({1, 2, 3})),
                         [](const auto& test) { return test.param.name(); });

TEST_P(GradientNormTest, RecipeReadsEveryGradient) {
  const OpRecipe recipe =
      library_->catalog().gradient_norm_recipe({.max_norm = 1}, parameters_of({{3}, {40'000}}));
  EXPECT_EQ(recipe.reads, (std::vector{gradient_of(0), gradient_of(1)}));
  EXPECT_EQ(recipe.writes, (std::vector{kNorm}));
  EXPECT_GT(recipe.algorithms[0].workspace_bytes, 0U);
}

TEST_P(GradientNormTest, RefusesWhatCannotBe) {
  for (const float max_norm : {0.0F, -1.0F, NAN, INFINITY}) {
    EXPECT_THROW(library_->catalog().gradient_norm_recipe({.max_norm = max_norm}, parameters_of({{3}})),
                 InvalidArgument);
  }
  EXPECT_THROW(library_->catalog().gradient_norm_recipe({.max_norm = 1}, {}), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::testing::gradient_norm_test
