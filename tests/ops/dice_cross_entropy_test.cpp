#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ops/layer_operands.h"
#include "tests/ops/loss_cases.h"
#include "tests/ops/reference_losses.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::dice_cross_entropy_test {
namespace {

using reference::Array;

constexpr double kUnitRoundoff = 0x1p-24;
constexpr double kDoubleNoise = 1e-13;
using ops::class_loss::kDice;

class DiceCrossEntropyTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  static Array logits_of(const Dims& dims) {
    Array logits = random_array(dims, 161);
    for (double& logit : logits.data) {
      logit *= 4;
    }
    return logits;
  }

  static OpHarness harness(OpLibrary& library, const Array& logits, const std::vector<std::int32_t>& targets,
                           DiceCrossEntropySpec spec = {}, Mode mode = Mode::kTraining) {
    OpHarness op(library, class_loss_case(spec, logits.dims), mode);
    op.set(kX, logits);
    set_targets(op, targets);
    return op;
  }
  OpHarness harness(const Array& logits, const std::vector<std::int32_t>& targets,
                    DiceCrossEntropySpec spec = {}, Mode mode = Mode::kTraining) {
    return harness(*library_, logits, targets, spec, mode);
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

// The op computes in double. It rounds only stored numbers: each p, the numerator a and the denominator b of
// each coefficient, and the gradient. The gradient of dice is p (slope - mean), where the mean is over the
// classes, weighted by p. Let s = (a / b + 2 t) / (N K b), which is at least the slope's magnitude, and M =
// sum of s p, which is at least the mean's. The slope is off by at most 3 u s. The mean is off by at most 4 u
// M, since p is rounded, too. So the gradient is off by at most u p ((s + M) + 3 s + 4 M).
std::vector<double> gradient_bounds(const Array& gradient, const reference::Loss& loss,
                                    const std::vector<std::int32_t>& targets,
                                    const DiceCrossEntropySpec& spec) {
  const std::vector<reference::DiceCoefficient> dice =
      reference::soft_dice(loss.probabilities, targets, static_cast<double>(spec.smooth));
  const auto classes = static_cast<std::size_t>(gradient.dims[1]);
  const std::size_t samples = dice.size() / classes;
  const std::size_t space = targets.size() / samples;
  const auto element = [&](std::size_t place, std::size_t k) {
    return (place / space * classes + k) * space + place % space;
  };
  const auto magnitude = [&](std::size_t place, std::size_t k) {
    const auto [numerator, denominator, weight] = dice[place / space * classes + k];
    const double twice_t = targets[place] == static_cast<std::int32_t>(k) ? 2 : 0;
    return (numerator / denominator + twice_t) / denominator * weight;
  };
  std::vector<double> bounds(gradient.data.size());
  for (std::size_t place = 0; place < targets.size(); ++place) {
    double mean = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      mean += magnitude(place, k) * loss.probabilities.data[element(place, k)];
    }
    for (std::size_t k = 0; k < classes; ++k) {
      const double p = loss.probabilities.data[element(place, k)];
      bounds[element(place, k)] =
          kUnitRoundoff * (static_cast<double>(spec.weight) *
                               (p / std::max(loss.counted, 1.0) + p * (4 * magnitude(place, k) + 5 * mean)) +
                           std::abs(gradient.data[element(place, k)])) +
          kDoubleNoise;
    }
  }
  return bounds;
}

void expect_as_reference(OpHarness& op, const Array& logits, const std::vector<std::int32_t>& targets,
                         const DiceCrossEntropySpec& spec) {
  const auto smooth = static_cast<double>(spec.smooth);
  const reference::Loss want = reference::dice_cross_entropy(logits, targets, smooth);
  op.run(op.writer(kY));
  EXPECT_NEAR(op.get(kY).data[0], want.mean, kUnitRoundoff * std::abs(want.mean) + kDoubleNoise);
  EXPECT_EQ(op.get(kY).data[1], want.correct);
  EXPECT_EQ(op.get(kY).data[2], want.counted);
  op.run(op.writer(kDX));
  const Array gradient = op.get(kDX);
  const Array want_gradient =
      reference::dice_cross_entropy_backward(logits, targets, smooth, static_cast<double>(spec.weight));
  const std::vector<double> bounds = gradient_bounds(want_gradient, want, targets, spec);
  for (std::size_t i = 0; i < gradient.data.size(); ++i) {
    ASSERT_NEAR(gradient.data[i], want_gradient.data[i], bounds[i]) << "element " << i;
  }
}

TEST_P(DiceCrossEntropyTest, LossAndGradientAreThoseOfTheReference) {
  for (const LossShape& shape : loss_shapes()) {
    SCOPED_TRACE(shape.name);
    for (const DiceCrossEntropySpec& spec :
         {DiceCrossEntropySpec{}, {.smooth = 0.001F}, {.weight = 0.4F, .smooth = 20}}) {
      const Array logits = logits_of(shape.logits);
      const std::vector<std::int32_t> targets = label_map(shape.logits, 162);
      OpHarness op = harness(logits, targets, spec);
      expect_as_reference(op, logits, targets, spec);
    }
  }
}

// The expected values are computed by hand, since device and reference could share a mistake. Two places both
// predict class 0 of two classes with certainty, and one of them is right. The coefficients are (2 + 1) / (2
// + 1 + 1) and 1 / (0 + 1 + 1).
TEST_P(DiceCrossEntropyTest, LossIsThatOfItsDefinition) {
  Array logits({1, 2, 2});
  logits.data = {100, 100, 0, 0};
  OpHarness op = harness(logits, {0, 1});
  op.run(0);
  EXPECT_EQ(op.get(kY).data[0], 50 + 1 - (0.75 + 0.5) / 2);
  EXPECT_EQ(op.get(kY).data[1], 1);
  EXPECT_EQ(op.get(kDice).data, (std::vector<double>{3, 1, 4, 2}));
}

TEST_P(DiceCrossEntropyTest, ThreadsDoNotChangeABit) {
  const auto plain = GetParam().make_plain();
  for (const LossShape& shape : loss_shapes()) {
    SCOPED_TRACE(shape.name);
    const Array logits = logits_of(shape.logits);
    const std::vector<std::int32_t> targets = label_map(shape.logits, 64);
    OpHarness here = harness(*library_, logits, targets);
    OpHarness there = harness(*plain, logits, targets);
    expect_same_bits(here, there);
  }
}

// The logits of an ignored place have no effect, whatever the other places contain.
TEST_P(DiceCrossEntropyTest, IgnoredPlacesHaveNoPart) {
  const Dims dims{2, 3, 4, 5};
  Array logits = logits_of(dims);
  std::vector<std::int32_t> targets = label_map(dims, 165);
  targets[7] = -1;
  OpHarness op = harness(logits, targets);
  op.run(0);
  const Array metrics = op.get(kY);
  op.run(1);
  const Array gradient = op.get(kDX);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(gradient.data[k * 20 + 7], 0);
    logits.data[k * 20 + 7] += 3 * static_cast<double>(k);
  }
  op.set(kX, logits);
  op.run(0);
  op.run(1);
  expect_equal(op.get(kY), metrics);
  expect_equal(op.get(kDX), gradient);
}

TEST_P(DiceCrossEntropyTest, WithoutAPlaceThatCountsEverythingIsZero) {
  OpHarness op = harness(logits_of({2, 3, 2}), {-1, -1, -2, -1});
  op.run(op.writer(kY));
  op.run(op.writer(kDX));
  EXPECT_EQ(op.get(kY).data, (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::ranges::all_of(op.get(kDX).data, [](double value) { return value == 0; }));
}

// A padded batch has samples in which no place counts. Regression: such a sample had coefficients of smooth /
// smooth = 1 and counted in the mean over samples. So in a batch of one real and one padded sample, the loss
// was too near to 0 and the gradients were half as large.
TEST_P(DiceCrossEntropyTest, SamplesWithoutAPlaceThatCountsHaveNoPart) {
  for (const LossShape& shape : loss_shapes()) {
    SCOPED_TRACE(shape.name);
    const Array logits = logits_of(shape.logits);
    const std::vector<std::int32_t> targets = label_map(shape.logits, 168);
    OpHarness op = harness(logits, targets);
    op.run(op.writer(kY));
    op.run(op.writer(kDX));

    Dims padded_dims = shape.logits;
    padded_dims[0] += 2;
    Array padded_logits = logits_of(padded_dims);
    std::ranges::copy(logits.data, padded_logits.data.begin());
    std::vector<std::int32_t> padded_targets = targets;
    padded_targets.resize(
        targets.size() / static_cast<std::size_t>(shape.logits[0]) * static_cast<std::size_t>(padded_dims[0]),
        -1);
    OpHarness padded = harness(padded_logits, padded_targets);
    expect_as_reference(padded, padded_logits, padded_targets, {});

    expect_equal(padded.get(kY), op.get(kY));
    Array gradient(padded_dims);
    std::ranges::copy(op.get(kDX).data, gradient.data.begin());
    expect_equal(padded.get(kDX), gradient);
  }
}

TEST_P(DiceCrossEntropyTest, NanInTheLogitsIsNanInTheLoss) {
  Array logits = logits_of({1, 3, 4});
  logits.data[5] = std::numeric_limits<double>::quiet_NaN();
  OpHarness op = harness(logits, {0, 1, 2, 0});
  op.run(0);
  EXPECT_TRUE(std::isnan(op.get(kY).data[0]));
}

TEST_P(DiceCrossEntropyTest, InPlaceEqualsOutOfPlace) {
  for (const LossShape& shape : loss_shapes()) {
    SCOPED_TRACE(shape.name);
    OpHarness op = harness(logits_of(shape.logits), label_map(shape.logits, 166));
    op.run(0);
    const Array metrics = op.get(kY);
    const Array probabilities = op.get(kSaved);
    const Array dice = op.get(kDice);
    op.run(1);
    const Array gradient = op.get(kDX);
    ASSERT_EQ(op.recipe(0).may_overwrite.size(), 1U);
    op.run(0, {.in_place = op.recipe(0).may_overwrite[0]});
    expect_equal(op.get(kY), metrics);
    expect_equal(op.get(kX), probabilities);
    expect_equal(op.get(kDice), dice);
    ASSERT_EQ(op.recipe(1).may_overwrite.size(), 1U);
    op.run(1, {.in_place = op.recipe(1).may_overwrite[0]});
    expect_equal(op.get(kSaved), gradient);
  }
}

TEST_P(DiceCrossEntropyTest, InferenceWritesMetricsOnly) {
  for (const LossShape& shape : loss_shapes()) {
    const Array logits = logits_of(shape.logits);
    const std::vector<std::int32_t> targets = label_map(shape.logits, 167);
    OpHarness training = harness(logits, targets);
    OpHarness inference = harness(logits, targets, {}, Mode::kInference);
    ASSERT_EQ(inference.recipes().size(), 1U);
    EXPECT_EQ(inference.recipe(0).writes, (std::vector{kY}));
    training.run(0);
    inference.run(0);
    expect_equal(inference.get(kY), training.get(kY));
  }
}

TEST_P(DiceCrossEntropyTest, RefusesATargetThatIsNoClass) {
  OpHarness op = harness(logits_of({1, 4, 2}), {3, 4});
  if (GetParam().device == "cuda") {  // a kernel cannot throw: the loss becomes NaN
    op.run(0);
    EXPECT_TRUE(std::isnan(op.get(kY).data[0]));
    return;
  }
  EXPECT_THROW(op.run(0), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Libraries, DiceCrossEntropyTest, ::testing::ValuesIn(tested_libraries({1, 2, 3, 7})),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace vdnn::testing::dice_cross_entropy_test
