#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/loss_cases.h"
#include "tests/ops/reference_losses.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::softmax_cross_entropy_test {
namespace {

using reference::Array;

constexpr double kUnitRoundoff = 0x1p-24;

class SoftmaxCrossEntropyTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  // Logits as large as those of a diverging network.
  static Array logits_of(const Dims& dims) {
    Array logits = random_array(dims, 61);
    for (double& logit : logits.data) {
      logit *= 8;
    }
    return logits;
  }

  static OpHarness harness(OpLibrary& library, const Array& logits, const std::vector<std::int32_t>& targets,
                           Mode mode = Mode::kTraining, SoftmaxCrossEntropySpec spec = {}) {
    OpHarness op(library, class_loss_case(spec, logits.dims), mode);
    op.set(kX, logits);
    set_targets(op, targets);
    return op;
  }
  OpHarness harness(const Array& logits, const std::vector<std::int32_t>& targets,
                    Mode mode = Mode::kTraining, SoftmaxCrossEntropySpec spec = {}) {
    return harness(*library_, logits, targets, mode, spec);
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

// The device computes in double from single-precision inputs. It rounds only stored results: each probability
// once, and then the gradient.
void expect_as_reference(OpHarness& op, const Array& logits, const std::vector<std::int32_t>& targets,
                         double weight = 1) {
  const reference::Loss want = reference::softmax_cross_entropy(logits, targets);
  constexpr double kDoubleNoise = 1e-13;
  op.run(op.writer(kY));
  EXPECT_NEAR(op.get(kY).data[0], want.mean, kUnitRoundoff * std::abs(want.mean) + kDoubleNoise);
  EXPECT_EQ(op.get(kY).data[1], want.correct);
  EXPECT_EQ(op.get(kY).data[2], want.counted);
  const Array probabilities = op.get(kSaved);
  for (std::size_t i = 0; i < probabilities.data.size(); ++i) {
    ASSERT_NEAR(probabilities.data[i], want.probabilities.data[i],
                kUnitRoundoff * want.probabilities.data[i] + kDoubleNoise);
  }
  op.run(op.writer(kDX));
  const Array gradient = op.get(kDX);
  const Array want_gradient = reference::softmax_cross_entropy_backward(logits, targets, weight);
  for (std::size_t i = 0; i < gradient.data.size(); ++i) {
    const double rounded = weight * want.probabilities.data[i] / std::max(want.counted, 1.0);
    const double bound = kUnitRoundoff * (rounded + std::abs(want_gradient.data[i])) + kDoubleNoise;
    ASSERT_NEAR(gradient.data[i], want_gradient.data[i], bound) << "element " << i;
  }
}

TEST_P(SoftmaxCrossEntropyTest, LossProbabilitiesAndGradientAreThoseOfTheReference) {
  for (const LossShape& shape : loss_shapes()) {
    SCOPED_TRACE(shape.name);
    const Array logits = logits_of(shape.logits);
    const std::vector<std::int32_t> targets = label_map(shape.logits, 62);
    OpHarness op = harness(logits, targets);
    expect_as_reference(op, logits, targets);
  }
}

TEST_P(SoftmaxCrossEntropyTest, WeightMultipliesTheGradientAlone) {
  for (const float weight : {0.4F, 2.5F}) {
    const Array logits = logits_of({3, 4, 5, 7});
    const std::vector<std::int32_t> targets = label_map(logits.dims, 63);
    OpHarness op = harness(logits, targets, Mode::kTraining, {.weight = weight});
    expect_as_reference(op, logits, targets, static_cast<double>(weight));
  }
}

// The sums do not depend on how threads share the places.
TEST_P(SoftmaxCrossEntropyTest, ThreadsDoNotChangeABit) {
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

TEST_P(SoftmaxCrossEntropyTest, CountsSamplesWhoseLargestLogitIsTheTarget) {
  Array logits({4, 3});
  logits.data = {1, 2, 3, 3, 2, 1, 5, 5, 0, 0, 9, 0};
  // One right, one wrong, one with two equal logits of which the first counts, and one ignored that would be
  // right.
  OpHarness op = harness(logits, {2, 1, 0, -1});
  op.run(0);
  EXPECT_EQ(op.get(kY).data[1], 2);
  EXPECT_EQ(op.get(kY).data[2], 3);
}

// One thread sums a matrix of logits, so that it needs no workspace.
TEST_P(SoftmaxCrossEntropyTest, ABatchWithoutSpaceTakesNoWorkspace) {
  if (GetParam().device != "cpu") {
    GTEST_SKIP() << "sums pass from kernel to kernel through the workspace";
  }
  OpHarness op = harness(logits_of({64, 10}), label_map({64, 10}, 65));
  EXPECT_EQ(op.recipe(0).algorithms[0].workspace_bytes, 0U);
}

TEST_P(SoftmaxCrossEntropyTest, WithoutASampleThatCountsEverythingIsZero) {
  OpHarness op = harness(logits_of({3, 4}), {-1, -1, -2});
  op.run(op.writer(kY));
  op.run(op.writer(kDX));
  EXPECT_EQ(op.get(kY).data, (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::ranges::all_of(op.get(kDX).data, [](double value) { return value == 0; }));
}

TEST_P(SoftmaxCrossEntropyTest, LargeLogitsDoNotOverflow) {
  Array logits({1, 3});
  logits.data = {3e38, -3e38, 0};
  OpHarness op = harness(logits, {0});
  op.run(0);
  EXPECT_EQ(op.get(kY).data[0], 0);
  EXPECT_EQ(op.get(kSaved).data, (std::vector<double>{1, 0, 0}));
}

TEST_P(SoftmaxCrossEntropyTest, NanInTheLogitsIsNanInTheLoss) {
  for (const std::size_t place : {0U, 1U, 2U}) {
    Array logits({1, 3});
    logits.data = {1, 2, 3};
    logits.data[place] = std::numeric_limits<double>::quiet_NaN();
    OpHarness op = harness(logits, {0});
    op.run(0);
    EXPECT_TRUE(std::isnan(op.get(kY).data[0]));
  }
}

// Regression: a diverged training run reported an accuracy, because the "largest" of several NaN logits
// counted as right.
TEST_P(SoftmaxCrossEntropyTest, WhereALogitIsNoNumberNothingIsRight) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Array logits({5, 3});
  logits.data = {kNan, kNan, kNan, 1, kNan, 3, kInfinity, 0, 0, -kInfinity, -kInfinity, -kInfinity, 0, 0, 7};
  OpHarness op = harness(logits, {0, 2, 0, 0, 2});
  op.run(0);
  EXPECT_EQ(op.get(kY).data[1], 1);  // the last
  EXPECT_EQ(op.get(kY).data[2], 5);
}

TEST_P(SoftmaxCrossEntropyTest, InPlaceEqualsOutOfPlace) {
  for (const LossShape& shape : loss_shapes()) {
    SCOPED_TRACE(shape.name);
    OpHarness op = harness(logits_of(shape.logits), label_map(shape.logits, 66));
    op.run(0);
    const Array metrics = op.get(kY);
    const Array probabilities = op.get(kSaved);
    op.run(1);
    const Array gradient = op.get(kDX);
    ASSERT_EQ(op.recipe(0).may_overwrite.size(), 1U);
    op.run(0, {.in_place = op.recipe(0).may_overwrite[0]});
    expect_equal(op.get(kY), metrics);
    expect_equal(op.get(kX), probabilities);
    ASSERT_EQ(op.recipe(1).may_overwrite.size(), 1U);
    op.run(1, {.in_place = op.recipe(1).may_overwrite[0]});
    expect_equal(op.get(kSaved), gradient);
  }
}

TEST_P(SoftmaxCrossEntropyTest, InferenceWritesMetricsOnly) {
  for (const LossShape& shape : loss_shapes()) {
    const Array logits = logits_of(shape.logits);
    const std::vector<std::int32_t> targets = label_map(shape.logits, 67);
    OpHarness training = harness(logits, targets);
    OpHarness inference = harness(logits, targets, Mode::kInference);
    ASSERT_EQ(inference.recipes().size(), 1U);
    EXPECT_EQ(inference.recipe(0).writes, (std::vector{kY}));
    training.run(0);
    inference.run(0);
    expect_equal(inference.get(kY), training.get(kY));
  }
}

TEST_P(SoftmaxCrossEntropyTest, RefusesATargetThatIsNoClass) {
  OpHarness op = harness(logits_of({2, 4}), {3, 4});
  if (GetParam().device == "cuda") {  // a kernel cannot throw: the loss becomes NaN
    op.run(0);
    EXPECT_TRUE(std::isnan(op.get(kY).data[0]));
    return;
  }
  EXPECT_THROW(op.run(0), InvalidArgument);
  const Dims dims{2, 4, 5, 7};
  std::vector<std::int32_t> targets = label_map(dims, 68);
  targets[35 + 9] = 4;
  OpHarness map = harness(logits_of(dims), targets);
  try {
    map.run(0);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.what(), std::string("target 4 of sample 1, place 9, is not one of 4 classes (0 to 3; "
                                        "negative: a place that does not count)"));
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, SoftmaxCrossEntropyTest,
                         ::testing::ValuesIn(tested_libraries({1, 2, 3, 7})),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace vdnn::testing::softmax_cross_entropy_test
