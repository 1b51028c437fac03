#include "tests/ops/loss_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace vdnn::testing {

LayerCase class_loss_case(const OpSpec& spec, const Dims& logits) {
  Dims targets = logits;
  targets.erase(targets.begin() + 1);
  return {.name = "loss",
          .spec = spec,
          .inputs = {{.dims = logits}, {.data_type = DataType::kI32, .dims = targets}},
          .output = {.dims = {kMetricsFloats}}};
}

LayerCase regression_case(const OpSpec& spec, const Dims& prediction) {
  return {.name = "loss",
          .spec = spec,
          .inputs = {{.dims = prediction}, {.dims = prediction}},
          .output = {.dims = {kMetricsFloats}}};
}

std::vector<std::int32_t> label_map(const Dims& logits, std::uint32_t seed) {
  std::mt19937 engine(seed);
  const auto classes = static_cast<std::uint64_t>(logits[1]);
  std::vector<std::int32_t> targets(element_count(logits) / classes);
  for (std::int32_t& target : targets) {
    // One in classes + 1 is ignored.
    target = static_cast<std::int32_t>(engine() % (classes + 1)) - 1;
  }
  return targets;
}

void set_targets(OpHarness& op, const std::vector<std::int32_t>& targets) {
  std::ranges::copy(targets, op.buffer(kX1).as<std::int32_t>().begin());
}

std::vector<LossShape> loss_shapes() {
  return {{"matrix", {6, 10}},         {"line", {2, 3, 7}},
          {"plane", {2, 4, 5, 7}},     {"volume", {2, 3, 3, 4, 5}},
          {"one_class", {2, 1, 3, 3}}, {"large_volume", {2, 3, 17, 15, 20}},
          {"many_classes", {5, 300}},  {"more_classes_than_threads", {2, 4500, 2}}};
}

void expect_same_bits(OpHarness& here, OpHarness& there) {
  for (const OpId pass : {0U, 1U}) {
    here.run(pass);
    there.run(pass);
    for (const Operand& written : here.recipe(pass).writes) {
      EXPECT_TRUE(
          std::ranges::equal(here.buffer(written).as<std::byte>(), there.buffer(written).as<std::byte>()));
    }
  }
}

}  // namespace vdnn::testing
