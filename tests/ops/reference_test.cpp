// Other tests compare oneDNN with the reference. These tests compare the reference with the definition of a
// derivative: its backward functions with central differences of its forward functions.

#include "tests/ops/reference.h"

#include <gtest/gtest.h>

#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/loss_cases.h"
#include "tests/ops/reference_losses.h"

namespace vdnn::testing {
namespace {

using reference::Array;

TEST(Reference, ElementwiseGradientsAreDerivatives) {
  const Array x = distinct_array({3, 4, 5}, 11);
  const Array other = random_array({3, 4, 5}, 12);
  const Array dy = random_array({3, 4, 5}, 13);
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::relu(moved), dy); },
      reference::relu_backward(reference::relu(x), dy));
  expect_gradient(
      x, [&](const Array& moved) { return dot(reference::add(moved, other).value, dy); }, dy);
}

// Small label maps of any rank.
std::vector<Dims> logits_dims() {
  return {{5, 4}, {2, 3, 4}, {2, 3, 2, 3}, {1, 2, 2, 3, 2}};
}

TEST(Reference, SoftmaxCrossEntropyGradientIsItsDerivative) {
  for (const Dims& dims : logits_dims()) {
    const Array logits = random_array(dims, 14);
    const std::vector<std::int32_t> targets = label_map(dims, 15);
    expect_gradient(
        logits,
        [&](const Array& moved) { return 0.5 * reference::softmax_cross_entropy(moved, targets).mean; },
        reference::softmax_cross_entropy_backward(logits, targets, 0.5));
  }
}

TEST(Reference, WithoutAPlaceThatCountsThereIsNoGradient) {
  const Array logits = random_array({2, 3, 2}, 16);
  const std::vector<std::int32_t> targets{-1, -7, -1, -2};
  expect_equal(reference::softmax_cross_entropy_backward(logits, targets), Array(logits.dims));
  expect_equal(reference::dice_cross_entropy_backward(logits, targets, 1), Array(logits.dims));
}

TEST(Reference, DiceCrossEntropyGradientIsItsDerivative) {
  for (const Dims& dims : logits_dims()) {
    for (const double smooth : {0.01, 1.0}) {
      const Array logits = random_array(dims, 17);
      const std::vector<std::int32_t> targets = label_map(dims, 18);
      expect_gradient(
          logits,
          [&](const Array& moved) { return 3 * reference::dice_cross_entropy(moved, targets, smooth).mean; },
          reference::dice_cross_entropy_backward(logits, targets, smooth, 3));
    }
  }
}

TEST(Reference, MeanSquaredErrorGradientIsItsDerivative) {
  const Array prediction = random_array({2, 3, 2, 3}, 19);
  const Array targets = random_array({2, 3, 2, 3}, 20);
  expect_gradient(
      prediction,
      [&](const Array& moved) { return 0.5 * reference::mean_squared_error(moved, targets).mean; },
      reference::mean_squared_error_backward(prediction, targets, 0.5));
}

}  // namespace
}  // namespace vdnn::testing
