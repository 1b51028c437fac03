#include <gtest/gtest.h>

#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_optimizers.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::sgd_test {
namespace {

using reference::Array;

ParameterRecipe vector_of(std::int64_t elements) {
  return {.name = "bias",
          .type = {.dims = {elements}},
          .storage_bytes = static_cast<std::uint64_t>(elements) * sizeof(float)};
}

class SgdTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(SgdTest, StepsAreWithinTheErrorBound) {
  // All numbers are exact in single precision.
  const SgdSpec spec{.momentum = 0.875F, .weight_decay = 0.0625F};
  constexpr float kLearningRate = 0.125F;
  for (const std::int64_t elements : {1, 37, 40'001}) {
    OpHarness op(*library_, spec, vector_of(elements));
    const Array parameter = random_array({elements}, 71);
    const Array gradient = random_array({elements}, 72);
    const Array momentum = random_array({elements}, 73);
    op.set(kFilter, parameter);
    op.set(kDFilter, gradient);
    op.set(kState, momentum);
    op.run(0, {.in_place = {}, .scalars = {.learning_rate = kLearningRate}});
    const reference::SgdStep want = reference::sgd(
        parameter, gradient, momentum,
        {.momentum = spec.momentum, .weight_decay = spec.weight_decay, .learning_rate = kLearningRate});
    expect_within_bounds(op.get(kFilter), want.parameter);
    expect_within_bounds(op.get(kState), want.momentum);
    expect_equal(op.get(kDFilter), gradient);
  }
}

// Clipping multiplies the gradient. With a scale of 1/2 the result equals that of half the gradient, bit for
// bit.
TEST_P(SgdTest, ClippedStepsScaleTheGradient) {
  const SgdSpec spec{.momentum = 0.9F, .weight_decay = 0.1F};
  constexpr Operand kNorm{OperandRole::kGradientNorm, 0};
  const Array gradient = random_array({37}, 75);
  Array half = gradient;
  for (double& element : half.data) {
    element /= 2;
  }
  OpHarness clipped(*library_, spec, vector_of(37), true);
  OpHarness plain(*library_, spec, vector_of(37));
  clipped.set(kDFilter, gradient);
  plain.set(kDFilter, half);
  clipped.buffer(kNorm).as<float>()[0] = 123;
  clipped.buffer(kNorm).as<float>()[1] = 0.5F;
  for (OpHarness* const op : {&clipped, &plain}) {
    op->set(kFilter, random_array({37}, 76));
    op->set(kState, random_array({37}, 77));
    op->run(0, {.in_place = {}, .scalars = {.learning_rate = 0.1F}});
  }
  expect_equal(clipped.get(kFilter), plain.get(kFilter));
  expect_equal(clipped.get(kState), plain.get(kState));
}

INSTANTIATE_TEST_SUITE_P(Libraries, SgdTest, ::testing::ValuesIn(tested_libraries({1, 2})),
                         [](const auto& test) { return test.param.name(); });

TEST_P(SgdTest, RecipeUpdatesInPlaceAndHoldsItsStateAsTheParameter) {
  ParameterRecipe parameter = vector_of(10);
  parameter.storage_bytes = 64;  // padded
  const UpdateRecipe recipe = library_->catalog().update_recipe(SgdSpec{.momentum = 0.9F}, parameter, false);
  ASSERT_EQ(recipe.state.size(), 1U);
  EXPECT_EQ(recipe.state[0].name, "momentum");
  EXPECT_EQ(recipe.state[0].type.bytes(), 64U);
  EXPECT_EQ(recipe.op.direction, Direction::kUpdate);
  EXPECT_EQ(recipe.op.reads, (std::vector{kFilter, kDFilter, kState}));
  EXPECT_EQ(recipe.op.writes, (std::vector{kFilter, kState}));
  const UpdateRecipe clipped = library_->catalog().update_recipe(SgdSpec{}, parameter, true);
  EXPECT_EQ(clipped.op.reads, (std::vector{kFilter, kDFilter, kState, {OperandRole::kGradientNorm, 0}}));
}

TEST_P(SgdTest, RefusesNegativeCoefficients) {
  EXPECT_THROW(library_->catalog().update_recipe(SgdSpec{.momentum = -0.1F}, vector_of(1), false),
               InvalidArgument);
  EXPECT_THROW(library_->catalog().update_recipe(SgdSpec{.weight_decay = -1}, vector_of(1), false),
               InvalidArgument);
}

}  // namespace
}  // namespace vdnn::testing::sgd_test
