#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing::gradient_sum_test {
namespace {

using reference::Array;

constexpr Operand kSum{OperandRole::kGradientSum, 0};

ParameterRecipe vector_of(std::int64_t elements) {
  const TensorType type{.dims = {elements}};
  return {.name = "bias", .type = type, .storage_bytes = type.bytes()};
}

class GradientSumTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

// The first micro-batch of a step overwrites the memory, whatever its contents. The gradients of the other
// micro-batches are added one by one in single precision, as ranks add theirs.
TEST_P(GradientSumTest, IsALeftFoldOverTheMicroBatchesToTheBit) {
  constexpr std::uint32_t kMicroSteps = 4;
  for (const std::int64_t elements : {1, 37, 40'001}) {
    OpHarness op(*library_, GradientSumSpec{}, vector_of(elements));
    op.set(kSum, random_array({elements}, 11));
    for (int step = 0; step < 2; ++step) {
      Array want;
      for (std::uint32_t micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
        const Array gradient =
            random_array({elements}, 12 + 4 * static_cast<std::uint32_t>(step) + micro_step);
        op.set(kDFilter, gradient);
        op.run(0, {.in_place = {}, .scalars = {.micro_step = micro_step, .micro_steps = kMicroSteps}});
        if (micro_step == 0) {
          want = gradient;
        } else {
          std::ranges::transform(want.data, gradient.data, want.data.begin(), [](double sum, double each) {
            return static_cast<double>(static_cast<float>(sum) + static_cast<float>(each));
          });
        }
        expect_equal(op.get(kSum), want);
        expect_equal(op.get(kDFilter), gradient);
      }
    }
  }
}

TEST_P(GradientSumTest, RecipeIsInPlace) {
  const OpRecipe recipe = library_->catalog().gradient_sum_recipe(vector_of(10));
  EXPECT_EQ(recipe.direction, Direction::kUpdate);
  EXPECT_EQ(recipe.reads, (std::vector{kDFilter, kSum}));
  EXPECT_EQ(recipe.writes, (std::vector{kSum}));
  EXPECT_GT(recipe.cost.bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Libraries, GradientSumTest, ::testing::ValuesIn(tested_libraries({1, 2})),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace vdnn::testing::gradient_sum_test
