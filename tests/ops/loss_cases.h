#pragma once
// Losses for tests: predictions, label maps, and checks that apply to every loss.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ops/layer_cases.h"

namespace vdnn::testing {

// Returns the case of a loss over classes. The logits are N x K x space, and each place of N x space has a
// target.
LayerCase class_loss_case(const OpSpec& spec, const Dims& logits);
// Returns the case of a loss whose prediction and targets have the same shape.
LayerCase regression_case(const OpSpec& spec, const Dims& prediction);

// Returns random targets for class_loss_case(). Some of them are negative, so that their places are ignored.
std::vector<std::int32_t> label_map(const Dims& logits, std::uint32_t seed);
void set_targets(OpHarness& op, const std::vector<std::int32_t>& targets);

// Small shapes of any rank, and one with samples that are large enough for several threads.
struct LossShape {
  std::string name;
  Dims logits;
};
std::vector<LossShape> loss_shapes();

// Runs both passes of a loss in two harnesses with equal operands and expects the same bits.
void expect_same_bits(OpHarness& here, OpHarness& there);

}  // namespace vdnn::testing
