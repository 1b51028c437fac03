#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/ops/layer_operands.h"
#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_normalization.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::group_normalization_test {
namespace {

using reference::Array;
using reference::Sums;

using ops::normalization::kDScale;
using ops::normalization::kDShift;
using ops::normalization::kMean;
using ops::normalization::kReciprocalDeviation;
using ops::normalization::kScale;
using ops::normalization::kShift;

constexpr float kEpsilon = 1e-3F;
// The ops sum in double, so a sum adds no rounding to single precision.
constexpr std::int64_t kRoundings = 0;

struct Case {
  Dims shape;
  std::int64_t groups = 1;
  // The mean of the data in standard deviations, so large that a sum of squares in single precision would
  // fail.
  double mean = 0;
};

LayerCase layer_case(const Case& of) {
  return same_shape_case("group_normalization", GroupNormalizationSpec{of.groups, kEpsilon}, of.shape);
}

Array rounded(Array array) {
  for (double& value : array.data) {
    value = static_cast<double>(static_cast<float>(value));
  }
  return array;
}

// Everything that an op of the layer may read.
struct Values {
  Array x;
  Array dy;
  Array scale;
  Array shift;
  reference::Sets sets;
  reference::Normalizer exact;  // of x
  reference::Normalizer saved;  // rounded, as the layer saves it

  explicit Values(const Case& of)
      : x(random_array(of.shape, 200)),
        dy(random_array(of.shape, 201)),
        scale(random_array({of.shape[1]}, 202)),
        shift(random_array({of.shape[1]}, 203)),
        sets(reference::group_sets(of.shape, of.groups)) {
    for (double& value : x.data) {
      value += of.mean;
    }
    x = rounded(x);
    exact = normalizer_of(x);
    saved = {.mean = rounded(exact.mean), .reciprocal_deviation = rounded(exact.reciprocal_deviation)};
  }

  reference::Normalizer normalizer_of(const Array& moved) const {
    const reference::Statistics of = reference::statistics(moved, sets, kRoundings);
    return reference::normalizer(of.mean.value, of.variance.value, static_cast<double>(kEpsilon));
  }

  void set(OpHarness& op) const {
    op.set(kX, x);
    op.set(kScale, scale);
    op.set(kShift, shift);
    if (op.recipes().size() > 1) {
      op.set(kDY, dy);
      op.set(kMean, saved.mean);
      op.set(kReciprocalDeviation, saved.reciprocal_deviation);
    }
  }
};

// Numbers of channels that fill rows of lanes, and others. Groups of one channel (instance normalisation) and
// of all channels. Samples of one block and of several, with a short last block.
const std::vector<Case> kCases{{{4, 6, 5, 7}, 3},        {{2, 3, 5, 7}, 3},        {{3, 20, 3, 5}, 1},
                               {{2, 4, 3, 4, 5}, 2},     {{3, 4, 9}, 4},           {{6, 10}, 5},
                               {{5, 1, 5, 7}, 1},        {{1, 32, 7, 5}, 32},      {{2, 3, 131, 173}, 3},
                               {{1, 16, 17, 19, 23}, 4}, {{2, 24, 61, 37}, 8, 50}, {{2, 6, 5, 7}, 2, -1000}};

// An expected value with one or two roundings to single precision, and the error of double precision.
Sums nearly_exact(const Array& value) {
  Sums sums(value.dims);
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    sums.value.data[i] = value.data[i];
    sums.magnitude[i] = std::abs(value.data[i]);
    sums.terms[i] = 2;
  }
  return sums;
}

class GroupNormalizationTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(GroupNormalizationTest, ForwardIsWithinTheErrorBound) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(to_string(of.shape));
    const Values values(of);
    const Sums want = reference::normalization(values.x, values.sets, values.exact,
                                               {values.scale, values.shift}, kRoundings);
    OpHarness training(*library_, layer_case(of));
    values.set(training);
    training.run(training.writer(kY));
    expect_within_bounds(training.get(kY), want);
    expect_within_bounds(training.get(kMean), nearly_exact(values.exact.mean));
    expect_within_bounds(training.get(kReciprocalDeviation), nearly_exact(values.exact.reciprocal_deviation));

    OpHarness inference(*library_, layer_case(of), Mode::kInference);
    ASSERT_EQ(inference.recipes().size(), 1U);
    values.set(inference);
    inference.run(0);
    expect_equal(inference.get(kY), training.get(kY));
  }
}

TEST_P(GroupNormalizationTest, GradientsAreWithinTheErrorBound) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(to_string(of.shape));
    const Values values(of);
    OpHarness op(*library_, layer_case(of));
    values.set(op);
    op.run(op.writer(kDX));
    const auto want = reference::normalization_backward(values.x, values.sets, values.saved, values.dy,
                                                        values.scale, kRoundings);
    expect_within_bounds(op.get(kDX), want.x);
    expect_within_bounds(op.get(kDScale), want.scale);
    expect_within_bounds(op.get(kDShift), want.shift);
  }
}

TEST_P(GroupNormalizationTest, InPlaceEqualsOutOfPlace) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(to_string(of.shape));
    const Values values(of);
    for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
      OpHarness op(*library_, layer_case(of), mode);
      expect_in_place_equals_apart(op, [&] { values.set(op); });
    }
  }
}

TEST_P(GroupNormalizationTest, ThreadsDoNotChangeABit) {
  const auto single = GetParam().make_plain();
  for (const Case& of : kCases) {
    SCOPED_TRACE(to_string(of.shape));
    const Values values(of);
    OpHarness alone(*single, layer_case(of));
    OpHarness team(*library_, layer_case(of));
    for (OpId id = 0; id < team.recipes().size(); ++id) {
      values.set(alone);
      values.set(team);
      alone.run(id);
      team.run(id);
      for (const Operand& written : team.recipe(id).writes) {
        expect_equal(team.get(written), alone.get(written));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, GroupNormalizationTest, ::testing::ValuesIn(tested_libraries({1, 2, 3})),
                         [](const auto& test) { return test.param.name(); });

// The loss must show a divergence: a NaN reaches its whole group, and no other group.
TEST_P(GroupNormalizationTest, NanStaysInItsGroup) {
  const Case of{{2, 4, 3, 3}, 2};
  Values values(of);
  values.x.data[0] = std::nan("");
  OpHarness op(*library_, layer_case(of));
  values.set(op);
  op.run(op.writer(kY));
  const Array y = op.get(kY);
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    EXPECT_EQ(std::isnan(y.data[i]), values.sets.of[i] == 0) << i;
  }
}

// A constant differs from its mean by rounding only, which epsilon keeps small.
TEST_P(GroupNormalizationTest, AConstantIsItsShift) {
  const Case of{{2, 4, 3, 3}, 2};
  Values values(of);
  std::ranges::fill(values.x.data, 0.1F);
  OpHarness op(*library_, layer_case(of));
  values.set(op);
  op.run(op.writer(kY));
  const Array y = op.get(kY);
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    EXPECT_EQ(y.data[i], values.shift.data[i / 9 % 4]) << i;
  }
}

TEST_P(GroupNormalizationTest, RecipeNamesOperandsInOrder) {
  const OpHarness op(*library_, layer_case({{2, 4, 3, 3}, 2}));
  ASSERT_EQ(op.recipes().size(), 2U);
  EXPECT_EQ(op.recipe(0).reads, (std::vector{kX, kScale, kShift}));
  EXPECT_EQ(op.recipe(0).writes, (std::vector{kY, kMean, kReciprocalDeviation}));
  EXPECT_EQ(op.recipe(1).reads, (std::vector{kX, kMean, kReciprocalDeviation, kDY, kScale}));
  EXPECT_EQ(op.recipe(1).writes, (std::vector{kDX, kDScale, kDShift}));
}

TEST_P(GroupNormalizationTest, RefusesGroupsThatDoNotDivide) {
  const TensorType type{.dims = {2, 6, 4, 4}};
  for (const GroupNormalizationSpec& spec :
       {GroupNormalizationSpec{.groups = 4}, {.groups = 0}, {.groups = 2, .epsilon = -1}}) {
    EXPECT_THROW(library_->catalog().recipe(spec, std::array{type}, std::array{type}, Mode::kTraining),
                 InvalidArgument);
  }
}

TEST(ReferenceNormalization, GroupGradientsAreDerivatives) {
  for (const Case& of : {Case{{2, 4, 3, 2}, 2}, Case{{3, 6}, 2}, Case{{2, 2, 2, 2, 3}, 2}}) {
    SCOPED_TRACE(to_string(of.shape));
    const Values values(of);
    const auto function = [&](const Array& x, const Array& scale, const Array& shift) {
      return dot(reference::normalization(x, values.sets, values.normalizer_of(x), {scale, shift}, 0).value,
                 values.dy);
    };
    const auto gradients = reference::normalization_backward(values.x, values.sets, values.exact, values.dy,
                                                             values.scale, kRoundings);
    expect_gradient(
        values.x, [&](const Array& moved) { return function(moved, values.scale, values.shift); },
        gradients.x.value);
    expect_gradient(
        values.scale, [&](const Array& moved) { return function(values.x, moved, values.shift); },
        gradients.scale.value);
    expect_gradient(
        values.shift, [&](const Array& moved) { return function(values.x, values.scale, moved); },
        gradients.shift.value);
  }
}

// The expected values are computed by hand. A group consists of neighbouring channels of one sample.
TEST(ReferenceNormalization, GroupStatisticsAreThoseOfASamplesChannels) {
  Array x({2, 4, 1});
  x.data = {1, 3, 10, 20, 5, 7, 30, 40};
  const reference::Statistics of = reference::statistics(x, reference::group_sets(x.dims, 2), 0);
  EXPECT_EQ(of.mean.value.dims, (Dims{2, 2}));
  EXPECT_EQ(of.mean.value.data, (std::vector<double>{2, 15, 6, 35}));
  EXPECT_EQ(of.variance.value.data, (std::vector<double>{1, 25, 1, 25}));
}

}  // namespace
}  // namespace vdnn::testing::group_normalization_test
