#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing::upsampling_test {
namespace {

using reference::Array;

struct Case {
  LayerCase layer;
  TestedLibrary library;
};

std::vector<Case> all_cases() {
  struct Shape {
    const char* name;
    Dims input;
    Dims factors;
  };
  const std::vector<Shape> shapes{{"line", {2, 5, 7}, {3}},
                                  {"line_long", {1, 2, 1000}, {7}},
                                  {"plane", {2, 16, 5, 7}, {2, 2}},
                                  {"plane_uneven", {2, 7, 5, 7}, {3, 2}},
                                  {"plane_one_way", {1, 20, 4, 3}, {1, 5}},
                                  {"plane_of_points", {2, 3, 1, 1}, {4, 3}},
                                  {"plane_alike", {2, 3, 4, 5}, {1, 1}},
                                  {"plane_large", {2, 64, 24, 20}, {2, 2}},
                                  {"volume", {2, 6, 3, 4, 5}, {2, 2, 2}},
                                  {"volume_uneven", {1, 16, 3, 4, 5}, {2, 3, 1}}};
  std::vector<Case> cases;
  for (const Shape& shape : shapes) {
    for (const UpsamplingMode mode : {UpsamplingMode::kNearest, UpsamplingMode::kLinear}) {
      const std::string name =
          std::string(mode == UpsamplingMode::kNearest ? "nearest_" : "linear_") + shape.name;
      const LayerCase layer = upsampling_case(name, shape.input, {mode, shape.factors});
      for (const TestedLibrary& library : tested_libraries({1, 2, 5})) {
        cases.push_back({layer, library});
      }
    }
  }
  return cases;
}

class UpsamplingTest : public ::testing::TestWithParam<Case> {
 protected:
  const LayerCase& layer() const { return GetParam().layer; }
  const UpsamplingSpec& spec() const { return std::get<UpsamplingSpec>(layer().spec); }

  std::unique_ptr<OpHarness> harness(OpLibrary& library, Mode mode = Mode::kTraining, std::size_t shift = 0) {
    auto made = std::make_unique<OpHarness>(library, layer(), mode, shift);
    made->set(kX, x_);
    if (mode == Mode::kTraining) {
      made->set(kDY, dy_);
    }
    return made;
  }

  // Expects the same bits from every op in both harnesses.
  static void expect_same_results(OpHarness& one, OpHarness& other) {
    for (OpId id = 0; id < one.recipes().size(); ++id) {
      one.run(id);
      other.run(id);
      for (const Operand& written : one.recipe(id).writes) {
        expect_equal(other.get(written), one.get(written));
      }
    }
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
  Array x_ = random_array(layer().inputs[0].dims, 41);
  Array dy_ = random_array(layer().output.dims, 42);
};

TEST_P(UpsamplingTest, ForwardAndBackwardAreWithinTheErrorBound) {
  const auto op = harness(*library_);
  op->run(op->writer(kY));
  op->run(op->writer(kDX));
  const reference::Sums y = reference::upsampling(x_, spec());
  if (spec().mode == UpsamplingMode::kNearest) {
    expect_equal(op->get(kY), y.value);
  } else {
    expect_within_bounds(op->get(kY), y);
  }
  expect_within_bounds(op->get(kDX), reference::upsampling_backward(x_.dims, dy_, spec()));
}

TEST_P(UpsamplingTest, InferenceComputesTheSame) {
  const auto training = harness(*library_);
  const auto inference = harness(*library_, Mode::kInference);
  ASSERT_EQ(inference->recipes().size(), 1U);
  training->run(0);
  inference->run(0);
  expect_equal(inference->get(kY), training->get(kY));
}

TEST_P(UpsamplingTest, RunsAreBitIdenticalAtOtherAddresses) {
  expect_same_results(*harness(*library_, Mode::kTraining, 0), *harness(*library_, Mode::kTraining, 3));
}

TEST_P(UpsamplingTest, ResultsDoNotDependOnTheNumberOfThreads) {
  const auto plain = GetParam().library.make_plain();
  expect_same_results(*harness(*plain), *harness(*library_));
}

TEST_P(UpsamplingTest, BackwardNeedsTheOutputsGradientAlone) {
  const auto op = harness(*library_);
  ASSERT_EQ(op->recipes().size(), 2U);
  EXPECT_EQ(op->recipe(0).reads, (std::vector{kX}));
  EXPECT_EQ(op->recipe(0).writes, (std::vector{kY}));
  EXPECT_EQ(op->recipe(1).reads, (std::vector{kDY}));
  EXPECT_EQ(op->recipe(1).writes, (std::vector{kDX}));
}

INSTANTIATE_TEST_SUITE_P(Cases, UpsamplingTest, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return test.param.layer.name + "_" + test.param.library.name();
});

}  // namespace
}  // namespace vdnn::testing::upsampling_test
