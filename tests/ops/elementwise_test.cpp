#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/layer_cases.h"
#include "vdnn/cpu_ops.h"

namespace vdnn::testing {
namespace {

using reference::Array;

// Small enough for one range, and large enough for a team.
const std::vector<Dims> kShapes{{3, 5}, {2, 7, 3, 5}, {1, 3, 4, 5, 6}, {4, 33, 13, 11}};

class ElementwiseTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<OpLibrary> library_ = make_cpu_ops({.threads = GetParam()});
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

// A run that diverges must be seen in its loss.
TEST_P(ElementwiseTest, ReluPassesNanAndStopsAtZero) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
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

// Every permission of every op: in place is out of place, bit for bit.
TEST_P(ElementwiseTest, InPlaceEqualsOutOfPlace) {
  for (const LayerCase& layer : {relu_case(kShapes.back()), add_case(kShapes.back())}) {
    OpHarness op(*library_, layer);
    for (OpId id = 0; id < op.recipes().size(); ++id) {
      const OpRecipe& recipe = op.recipe(id);
      ASSERT_FALSE(recipe.may_overwrite.empty());
      for (const Overwrite& permission : recipe.may_overwrite) {
        SCOPED_TRACE(layer.name + " op " + std::to_string(id) + " over read " +
                     std::to_string(permission.read));
        for (std::uint32_t i = 0; i < recipe.reads.size(); ++i) {
          op.set(recipe.reads[i], random_array(kShapes.back(), 50 + i));
        }
        op.run(id);
        const Array apart = op.get(recipe.writes[permission.write]);
        op.run(id, {.in_place = permission});
        expect_equal(op.get(recipe.reads[permission.read]), apart);
      }
    }
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

INSTANTIATE_TEST_SUITE_P(Threads, ElementwiseTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace vdnn::testing
