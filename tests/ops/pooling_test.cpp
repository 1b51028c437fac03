#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"
#include "vdnn/cpu_ops.h"

namespace vdnn::testing::pooling_test {
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
    Dims kernel;
    Dims stride;
    Dims padding;
  };
  // The wide window has too many elements for an index of one byte.
  const std::vector<Shape> shapes{{"plane", {2, 8, 8, 8}, {2, 2}, {2, 2}, {0, 0}},
                                  {"overlapping", {2, 16, 9, 11}, {3, 3}, {2, 2}, {1, 1}},
                                  {"uneven", {3, 5, 7, 10}, {3, 2}, {1, 3}, {1, 0}},
                                  {"remainder", {1, 20, 8, 7}, {3, 3}, {2, 2}, {0, 0}},
                                  {"whole_plane", {2, 33, 5, 6}, {5, 6}, {1, 1}, {0, 0}},
                                  {"wide_window", {1, 4, 20, 19}, {17, 17}, {1, 2}, {2, 0}},
                                  {"volume", {2, 6, 5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {0, 1, 1}},
                                  {"line", {2, 3, 11}, {3}, {2}, {1}},
                                  {"global_plane", {3, 40, 7, 7}, {7, 7}, {1, 1}, {0, 0}},
                                  {"global_large_plane", {1, 16, 20, 23}, {20, 23}, {1, 1}, {0, 0}},
                                  {"global_volume", {2, 17, 3, 4, 5}, {3, 4, 5}, {1, 1, 1}, {0, 0, 0}},
                                  {"global_large_volume", {1, 16, 8, 9, 7}, {8, 9, 7}, {1, 1, 1}, {0, 0, 0}},
                                  {"global_line", {2, 5, 300}, {300}, {1}, {0}}};
  std::vector<Case> cases;
  for (const Shape& shape : shapes) {
    for (const PoolingMode mode : {PoolingMode::kMax, PoolingMode::kAverage}) {
      const std::string name = std::string(mode == PoolingMode::kMax ? "max_" : "average_") + shape.name;
      const LayerCase layer =
          pooling_case(name, shape.input, {mode, shape.kernel, shape.stride, shape.padding});
      for (const TestedLibrary& library : vendor_tested_libraries({1, 2})) {
        cases.push_back({layer, library});
      }
    }
  }
  return cases;
}

class PoolingTest : public ::testing::TestWithParam<Case> {
 protected:
  const LayerCase& layer() const { return GetParam().layer; }
  const PoolingSpec& spec() const { return std::get<PoolingSpec>(layer().spec); }
  bool max() const { return spec().mode == PoolingMode::kMax; }

  std::unique_ptr<OpHarness> harness(Mode mode = Mode::kTraining, std::size_t shift = 0) {
    auto made = std::make_unique<OpHarness>(*library_, layer(), mode, shift);
    made->set(kX, x_);
    if (mode == Mode::kTraining) {
      made->set(kDY, dy_);
    }
    return made;
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
  Array x_ = distinct_array(layer().inputs[0].dims, 31);
  Array dy_ = random_array(layer().output.dims, 32);
};

TEST_P(PoolingTest, ForwardAndBackwardAreWithinTheErrorBound) {
  const auto op = harness();
  op->run(op->writer(kY));
  op->run(op->writer(kDX));
  const reference::Window window = window_of(spec());
  if (max()) {
    expect_equal(op->get(kY), reference::max_pooling(x_, window));
    expect_within_bounds(op->get(kDX), reference::max_pooling_backward(x_, dy_, window));
  } else {
    expect_within_bounds(op->get(kY), reference::average_pooling(x_, window));
    expect_within_bounds(op->get(kDX), reference::average_pooling_backward(x_.dims, dy_, window));
  }
}

TEST_P(PoolingTest, InferenceSavesNothingAndComputesTheSame) {
  const auto training = harness();
  const auto inference = harness(Mode::kInference);
  ASSERT_EQ(inference->recipes().size(), 1U);
  EXPECT_EQ(inference->recipe(0).writes, (std::vector{kY}));
  training->run(0);
  inference->run(0);
  expect_equal(inference->get(kY), training->get(kY));
}

TEST_P(PoolingTest, RunsAreBitIdenticalAtOtherAddresses) {
  const auto one = harness(Mode::kTraining, 0);
  const auto other = harness(Mode::kTraining, 3);
  for (OpId id = 0; id < one->recipes().size(); ++id) {
    one->run(id);
    other->run(id);
    for (const Operand& written : one->recipe(id).writes) {
      const auto bytes = one->buffer(written).as<std::byte>();
      EXPECT_TRUE(std::ranges::equal(bytes, other->buffer(written).as<std::byte>()));
    }
  }
}

// oneDNN saves the positions of the maxima, so that backward reads no feature maps; cuDNN finds them again.
TEST_P(PoolingTest, BackwardReadsWhatItsLibraryWants) {
  const auto op = harness();
  const auto recipes = op->recipes();
  ASSERT_EQ(recipes.size(), 2U);
  EXPECT_EQ(recipes[0].reads, (std::vector{kX}));
  EXPECT_EQ(recipes[1].writes, (std::vector{kDX}));
  if (GetParam().library.device == "cuda") {
    EXPECT_EQ(recipes[0].writes, (std::vector{kY}));
    EXPECT_EQ(recipes[1].reads, (std::vector{kX, kY, kDY}));
  } else {
    EXPECT_EQ(recipes[0].writes, max() ? (std::vector{kY, kSaved}) : (std::vector{kY}));
    EXPECT_EQ(recipes[1].reads, max() ? (std::vector{kDY, kSaved}) : (std::vector{kDY}));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PoolingTest, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return test.param.layer.name + "_" + test.param.library.name();
});

}  // namespace
}  // namespace vdnn::testing::pooling_test
