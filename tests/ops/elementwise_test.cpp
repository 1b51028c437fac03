#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_activation.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::elementwise_test {
namespace {

using reference::Array;

// Sizes for one thread, and a size large enough for a team of threads.
const std::vector<Dims> kShapes{{3, 5}, {2, 7, 3, 5}, {1, 3, 4, 5, 6}, {4, 33, 13, 11}};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ElementwiseTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(ElementwiseTest, ReluIsExact) {
  for (const Dims& shape : kShapes) {
    SCOPED_TRACE(to_string(shape));
    OpHarness op(*library_, relu_case(shape));
    const Array x = random_array(shape, 41);
    const Array dy = random_array(shape, 42);
    op.set(kX, x);
    op.set(kDY, dy);
    op.run(op.writer(kY));
    expect_equal(op.get(kY), reference::relu(x));
    op.run(op.writer(kDX));
    expect_equal(op.get(kDX), reference::relu_backward(reference::relu(x), dy));
  }
}

// The loss must show a divergence.
TEST_P(ElementwiseTest, ReluPassesNanAndStopsAtZero) {
  OpHarness op(*library_, relu_case({5}));
  Array x({5});
  x.data = {kNan, -kInfinity, kInfinity, 0.0, -0.0};
  Array dy({5});
  dy.data = {1, 2, 3, 4, 5};
  op.set(kX, x);
  op.set(kDY, dy);
  op.run(op.writer(kY));
  op.run(op.writer(kDX));
  EXPECT_TRUE(std::isnan(op.get(kY).data[0]));
  EXPECT_EQ(op.get(kY).data[1], 0);
  EXPECT_EQ(op.get(kY).data[2], kInfinity);
  EXPECT_EQ(op.get(kDX).data, (std::vector<double>{1, 0, 3, 0, 0}));
}

TEST_P(ElementwiseTest, AddIsWithinTheErrorBoundAndItsGradientsAreCopies) {
  for (const Dims& shape : kShapes) {
    SCOPED_TRACE(to_string(shape));
    OpHarness op(*library_, add_case(shape));
    const Array a = random_array(shape, 43);
    const Array b = random_array(shape, 44);
    const Array dy = random_array(shape, 45);
    op.set(kX, a);
    op.set(kX1, b);
    op.set(kDY, dy);
    op.run(op.writer(kY));
    expect_within_bounds(op.get(kY), reference::add(a, b));
    for (const Operand& gradient : {kDX, kDX1}) {
      op.run(op.writer(gradient));
      expect_equal(op.get(gradient), dy);
    }
  }
}

TEST_P(ElementwiseTest, LeakyReluIsWithinTheErrorBound) {
  for (const Dims& shape : kShapes) {
    for (const float slope : {0.01F, 0.25F, 1.5F}) {
      SCOPED_TRACE(to_string(shape) + ", slope " + std::to_string(slope));
      OpHarness op(*library_, same_shape_case("leaky_relu", ReluSpec{slope}, shape));
      const Array x = random_array(shape, 46);
      const Array dy = random_array(shape, 47);
      op.set(kX, x);
      op.set(kDY, dy);
      op.run(op.writer(kY));
      expect_within_bounds(op.get(kY), reference::leaky_relu(x, static_cast<double>(slope)));
      op.run(op.writer(kDX));
      expect_within_bounds(op.get(kDX), reference::leaky_relu_backward(x, dy, static_cast<double>(slope)));
    }
  }
}

TEST_P(ElementwiseTest, LeakyReluPassesNanAndInfinities) {
  OpHarness op(*library_, same_shape_case("leaky_relu", ReluSpec{0.5F}, {6}));
  Array x({6});
  // Half of the last element is smaller than any positive float.
  x.data = {kNan, -kInfinity, kInfinity, 0.0, -0.0, -0x1p-149};
  Array dy({6});
  dy.data = {1, kInfinity, kNan, 4, 5, 6};
  op.set(kX, x);
  op.set(kDY, dy);
  op.run(op.writer(kY));
  op.run(op.writer(kDX));
  const Array y = op.get(kY);
  EXPECT_TRUE(std::isnan(y.data[0]));
  EXPECT_EQ(y.data[1], -kInfinity);
  EXPECT_EQ(y.data[2], kInfinity);
  const Array dx = op.get(kDX);
  EXPECT_EQ(dx.data[0], 1);
  EXPECT_EQ(dx.data[1], kInfinity);
  EXPECT_TRUE(std::isnan(dx.data[2]));
  EXPECT_EQ(std::vector<double>(dx.data.begin() + 3, dx.data.end()), (std::vector<double>{2, 2.5, 3}));
}

TEST_P(ElementwiseTest, SigmoidIsWithinTheErrorBound) {
  for (const Dims& shape : kShapes) {
    SCOPED_TRACE(to_string(shape));
    OpHarness op(*library_, same_shape_case("sigmoid", SigmoidSpec{}, shape));
    Array x = random_array(shape, 48);
    for (double& value : x.data) {
      value *= 64;
    }
    const Array dy = random_array(shape, 49);
    op.set(kX, x);
    op.set(kDY, dy);
    op.run(op.writer(kY));
    const Array y = op.get(kY);
    expect_within_bounds(y, reference::sigmoid(x));
    op.run(op.writer(kDX));
    expect_within_bounds(op.get(kDX), reference::sigmoid_backward(y, dy));
  }
}

TEST_P(ElementwiseTest, SigmoidHasItsLimits) {
  OpHarness op(*library_, same_shape_case("sigmoid", SigmoidSpec{}, {6}));
  Array x({6});
  x.data = {kNan, -kInfinity, kInfinity, 0, -1000, 1000};
  op.set(kX, x);
  op.run(op.writer(kY));
  const Array y = op.get(kY);
  EXPECT_TRUE(std::isnan(y.data[0]));
  EXPECT_EQ(std::vector<double>(y.data.begin() + 1, y.data.end()), (std::vector<double>{0, 1, 0.5, 0, 1}));
}

TEST_P(ElementwiseTest, InPlaceEqualsOutOfPlace) {
  const Dims& shape = kShapes.back();
  for (const LayerCase& layer : {relu_case(shape), same_shape_case("leaky_relu", ReluSpec{0.125F}, shape),
                                 same_shape_case("sigmoid", SigmoidSpec{}, shape), add_case(shape)}) {
    SCOPED_TRACE(layer.name);
    OpHarness op(*library_, layer);
    for (OpId id = 0; id < op.recipes().size(); ++id) {
      EXPECT_FALSE(op.recipe(id).may_overwrite.empty());
    }
    expect_in_place_equals_apart(op, [&] {
      std::uint32_t seed = 50;
      for (const OpRecipe& recipe : op.recipes()) {
        for (const Operand& read : recipe.reads) {
          op.set(read, random_array(shape, seed++));
        }
      }
    });
  }
}

TEST_P(ElementwiseTest, RefusesANegativeSlope) {
  const TensorType type{.dims = {2, 3}};
  for (const float slope : {-0.1F, static_cast<float>(kNan), static_cast<float>(kInfinity)}) {
    EXPECT_THROW(
        library_->catalog().recipe(ReluSpec{slope}, std::array{type}, std::array{type}, Mode::kTraining),
        InvalidArgument);
  }
}

TEST_P(ElementwiseTest, RecipesNameOperandsInOrder) {
  OpHarness relu(*library_, relu_case({2, 3}));
  EXPECT_EQ(relu.recipe(1).reads, (std::vector{kY, kDY}));
  EXPECT_EQ(relu.recipe(1).may_overwrite[0].read, 1U);
  OpHarness add(*library_, add_case({2, 3}));
  ASSERT_EQ(add.recipes().size(), 3U);
  EXPECT_EQ(add.recipe(0).reads, (std::vector{kX, kX1}));
  EXPECT_EQ(add.recipe(0).may_overwrite.size(), 2U);
  EXPECT_EQ(add.recipe(1).writes, (std::vector{kDX}));
  EXPECT_EQ(add.recipe(2).writes, (std::vector{kDX1}));
}

INSTANTIATE_TEST_SUITE_P(Libraries, ElementwiseTest, ::testing::ValuesIn(tested_libraries({1, 2, 3})),
                         [](const auto& test) { return test.param.name(); });

TEST(ReferenceActivation, GradientsAreDerivatives) {
  const Array x = distinct_array({3, 4, 5}, 60);
  const Array dy = random_array({3, 4, 5}, 61);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::leaky_relu(moved, 0.3).value, dy); },
      reference::leaky_relu_backward(x, dy, 0.3).value);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::sigmoid(moved).value, dy); },
      reference::sigmoid_backward(reference::sigmoid(x).value, dy).value);
}

}  // namespace
}  // namespace vdnn::testing::elementwise_test
