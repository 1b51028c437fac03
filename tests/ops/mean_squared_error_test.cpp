#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/loss_cases.h"
#include "tests/ops/reference_losses.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing::mean_squared_error_test {
namespace {

using reference::Array;

constexpr double kUnitRoundoff = 0x1p-24;

const std::vector<Dims>& shapes() {
  static const std::vector<Dims> kShapes{{1, 1},       {6, 10},         {2, 3, 7},
                                         {2, 3, 5, 7}, {2, 2, 3, 4, 5}, {3, 4, 60, 70}};
  return kShapes;
}

class MeanSquaredErrorTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  OpHarness harness(const Dims& dims, MeanSquaredErrorSpec spec = {}, Mode mode = Mode::kTraining) {
    OpHarness op(*library_, regression_case(spec, dims), mode);
    op.set(kX, random_array(dims, 171));
    op.set(kX1, random_array(dims, 172));
    return op;
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

// The op sums the loss in double and rounds it once. It rounds the gradient's factor, difference and product.
TEST_P(MeanSquaredErrorTest, LossAndGradientAreThoseOfTheReference) {
  for (const Dims& dims : shapes()) {
    for (const float weight : {1.0F, 0.3F}) {
      OpHarness op = harness(dims, {.weight = weight});
      const Array x = op.get(kX);
      const Array t = op.get(kX1);
      op.run(0);
      const reference::Loss want = reference::mean_squared_error(x, t);
      EXPECT_NEAR(op.get(kY).data[0], want.mean, kUnitRoundoff * want.mean * (1 + 1e-6));
      EXPECT_EQ(op.get(kY).data[1], 0);
      EXPECT_EQ(op.get(kY).data[2], static_cast<double>(x.data.size()));
      op.run(1);
      const Array gradient = op.get(kDX);
      const Array want_gradient = reference::mean_squared_error_backward(x, t, static_cast<double>(weight));
      for (std::size_t i = 0; i < gradient.data.size(); ++i) {
        const double bound = 3 * kUnitRoundoff / (1 - 3 * kUnitRoundoff) * std::abs(want_gradient.data[i]);
        ASSERT_NEAR(gradient.data[i], want_gradient.data[i], bound) << to_string(dims) << " element " << i;
      }
    }
  }
}

TEST_P(MeanSquaredErrorTest, ThreadsDoNotChangeABit) {
  const auto single = GetParam().make_plain();
  for (const Dims& dims : shapes()) {
    SCOPED_TRACE(to_string(dims));
    OpHarness here = harness(dims);
    OpHarness there(*single, regression_case(MeanSquaredErrorSpec{}, dims));
    there.set(kX, here.get(kX));
    there.set(kX1, here.get(kX1));
    expect_same_bits(here, there);
  }
}

TEST_P(MeanSquaredErrorTest, InPlaceEqualsOutOfPlace) {
  OpHarness op = harness({3, 4, 60, 70});
  op.run(1);
  const Array gradient = op.get(kDX);
  ASSERT_EQ(op.recipe(1).may_overwrite.size(), 1U);
  op.run(1, {.in_place = op.recipe(1).may_overwrite[0]});
  expect_equal(op.get(kX), gradient);
}

TEST_P(MeanSquaredErrorTest, InferenceHasTheSameMetricsAndNoBackward) {
  OpHarness training = harness({2, 3, 5, 7});
  OpHarness inference = harness({2, 3, 5, 7}, {}, Mode::kInference);
  ASSERT_EQ(inference.recipes().size(), 1U);
  training.run(0);
  inference.run(0);
  expect_equal(inference.get(kY), training.get(kY));
}

TEST_P(MeanSquaredErrorTest, NanInThePredictionIsNanInTheLoss) {
  OpHarness op = harness({2, 3});
  Array x = op.get(kX);
  x.data[4] = std::numeric_limits<double>::quiet_NaN();
  op.set(kX, x);
  op.run(0);
  EXPECT_TRUE(std::isnan(op.get(kY).data[0]));
}

INSTANTIATE_TEST_SUITE_P(Libraries, MeanSquaredErrorTest, ::testing::ValuesIn(tested_libraries({1, 2, 3})),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace vdnn::testing::mean_squared_error_test
