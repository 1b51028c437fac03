#pragma once
// Losses for tests: predictions, label maps, and checks that apply to every loss.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ops/layer_cases.h"

namespace vdnn::testing {

// Over classes: logits N x K x space, a target at each place of N x space.
LayerCase class_loss_case(const OpSpec& spec, const Dims& logits);
// Prediction and targets of one shape.
LayerCase regression_case(const OpSpec& spec, const Dims& prediction);

// Classes for class_loss_case(), some of them negative (ignored).
std::vector<std::int32_t> label_map(const Dims& logits, std::uint32_t seed);
void set_targets(OpHarness& op, const std::vector<std::int32_t>& targets);

// Small shapes of any rank, and one whose samples are large enough for several threads.
struct LossShape {
  std::string name;
  Dims logits;
};
std::vector<LossShape> loss_shapes();

// Runs both passes of a loss in two harnesses with equal operands and expects the same bits.
void expect_same_bits(OpHarness& here, OpHarness& there);

}  // namespace vdnn::testing
