#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"
#include "vdnn/cpu_ops.h"

namespace vdnn::testing::lrn_test {
namespace {

using reference::Array;

struct Case {
  LayerCase layer;
  TestedLibrary library;
};

std::vector<Case> all_cases() {
  const LrnSpec alexnet{.size = 5, .alpha = 1e-4F, .beta = 0.75F, .k = 2};
  // Strong enough for every channel to matter.
  const LrnSpec strong{.size = 5, .alpha = 2, .beta = 0.75F, .k = 1};
  const LrnSpec other_power{.size = 3, .alpha = 1, .beta = 0.6F, .k = 1.5F};
  const LrnSpec quotient{.size = 7, .alpha = 3, .beta = 1, .k = 0.5F};
  const LrnSpec wide{.size = 9, .alpha = 2, .beta = 0.75F, .k = 1};
  const LrnSpec alone{.size = 1, .alpha = 1, .beta = 0.5F, .k = 1};
  const LrnSpec alone_fast{.size = 1, .alpha = 1, .beta = 0.75F, .k = 1};
  const std::vector<LayerCase> layers{
      same_shape_case("alexnet", alexnet, {2, 96, 5, 7}), same_shape_case("strong", strong, {2, 32, 5, 7}),
      same_shape_case("odd_channels", strong, {3, 13, 4, 3}),
      same_shape_case("few_channels", strong, {2, 3, 5, 7}),
      same_shape_case("one_channel", strong, {2, 1, 5, 4}),
      same_shape_case("other_power", other_power, {2, 17, 5, 7}),
      same_shape_case("quotient", quotient, {2, 16, 3, 5}),
      same_shape_case("rest_of_channels", strong, {2, 40, 5, 7}),
      // oneDNN 2.6's fast backward pass was off by tenths here,
      same_shape_case("wide", wide, {1, 24, 5, 7}),
      same_shape_case("wide_even_channels", wide, {1, 32, 5, 7}),
      // and its creation crashed here.
      same_shape_case("alone_fast", alone_fast, {2, 24, 5, 7}), same_shape_case("alone", alone, {2, 5, 5, 7}),
      same_shape_case("volume", strong, {2, 16, 3, 4, 5}), same_shape_case("line", strong, {2, 20, 9})};
  std::vector<Case> cases;
  for (const LayerCase& layer : layers) {
    for (const TestedLibrary& library : vendor_tested_libraries({1, 2})) {
      cases.push_back({layer, library});
    }
  }
  return cases;
}

class LrnTest : public ::testing::TestWithParam<Case> {
 protected:
  const LayerCase& layer() const { return GetParam().layer; }
  const LrnSpec& spec() const { return std::get<LrnSpec>(layer().spec); }

  std::unique_ptr<OpHarness> harness(Mode mode = Mode::kTraining, std::size_t shift = 0) {
    auto made = std::make_unique<OpHarness>(*library_, layer(), mode, shift);
    made->set(kX, x_);
    if (mode == Mode::kTraining) {
      made->set(kDY, dy_);
    }
    return made;
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
  Array x_ = random_array(layer().inputs[0].dims, 51);
  Array dy_ = random_array(layer().output.dims, 52);
};

TEST_P(LrnTest, ForwardAndBackwardAreWithinTheErrorBound) {
  const auto op = harness();
  op->run(op->writer(kY));
  op->run(op->writer(kDX));
  expect_within_bounds(op->get(kY), reference::lrn(x_, spec()));
  expect_within_bounds(op->get(kDX), reference::lrn_backward(x_, dy_, spec()));
}

TEST_P(LrnTest, InferenceSavesNothingAndIsWithinTheErrorBound) {
  const auto op = harness(Mode::kInference);
  ASSERT_EQ(op->recipes().size(), 1U);
  EXPECT_EQ(op->recipe(0).writes, (std::vector{kY}));
  op->run(0);
  expect_within_bounds(op->get(kY), reference::lrn(x_, spec()));
}

TEST_P(LrnTest, RunsAreBitIdenticalAtOtherAddresses) {
  const auto one = harness(Mode::kTraining, 0);
  const auto other = harness(Mode::kTraining, 3);
  for (const OpId id : {0U, 1U}) {
    one->run(id);
    other->run(id);
  }
  expect_equal(other->get(kY), one->get(kY));
  expect_equal(other->get(kDX), one->get(kDX));
}

// oneDNN chooses the contents of the saved tensor. Backward must read X and that tensor.
TEST_P(LrnTest, BackwardReadsTheInputAndWhatForwardMade) {
  const auto op = harness();
  ASSERT_EQ(op->recipes().size(), 2U);
  const bool saves = op->recipe(0).writes.size() > 1;
  EXPECT_EQ(op->recipe(0).reads, (std::vector{kX}));
  EXPECT_EQ(op->recipe(0).writes, saves ? (std::vector{kY, kSaved}) : (std::vector{kY}));
  EXPECT_EQ(op->recipe(1).writes, (std::vector{kDX}));
  if (GetParam().library.device == "cuda") {
    EXPECT_FALSE(saves);
    EXPECT_EQ(op->recipe(1).reads, (std::vector{kX, kY, kDY}));
  } else {
    EXPECT_EQ(op->recipe(1).reads, saves ? (std::vector{kDY, kX, kSaved}) : (std::vector{kDY, kX}));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LrnTest, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return test.param.layer.name + "_" + test.param.library.name();
});

// oneDNN 2.6 has fast implementations for planes only. Regression: volumes ran in its reference
// implementation.
TEST(Lrn, VolumesAreComputedAsPlanesAre) {
  const auto library = make_cpu_ops({});
  const LrnSpec spec;
  OpHarness plane(*library, same_shape_case("plane", spec, {2, 16, 12, 5}));
  OpHarness volume(*library, same_shape_case("volume", spec, {2, 16, 3, 4, 5}));
  for (const OpId id : {0U, 1U}) {
    EXPECT_EQ(volume.recipe(id).algorithms[0].name, plane.recipe(id).algorithms[0].name);
  }
}

}  // namespace
}  // namespace vdnn::testing::lrn_test
