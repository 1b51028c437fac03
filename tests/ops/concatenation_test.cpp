#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::concatenation_test {
namespace {

using reference::Array;

constexpr Operand input(std::uint32_t index) {
  return {OperandRole::kInput, index};
}
constexpr Operand gradient(std::uint32_t index) {
  return {OperandRole::kInputGradient, index};
}

struct Case {
  Dims shape;  // of the output, whose channels are those of all inputs together
  std::vector<std::int64_t> channels;
};

// Sizes for one thread, and a size large enough for a team of threads.
const std::vector<Case> kCases{{{3, 5}, {2, 3}},
                               {{2, 7, 5, 7}, {1, 4, 2}},
                               {{2, 9, 11}, {8, 1}},
                               {{1, 8, 3, 4, 5}, {3, 3, 1, 1}},
                               {{4, 48, 13, 11}, {16, 32}},
                               {{600, 40}, {33, 7}}};

LayerCase layer_case(const Case& of) {
  LayerCase layer{
      .name = "concatenation", .spec = ConcatenationSpec{}, .inputs = {}, .output = {.dims = of.shape}};
  for (const std::int64_t channels : of.channels) {
    layer.inputs.push_back({.dims = of.shape});
    layer.inputs.back().dims[1] = channels;
  }
  return layer;
}

// Channels [begin, begin + channels) of an array in logical order.
Array slice(const Array& array, std::int64_t begin, std::int64_t channels) {
  Dims dims = array.dims;
  dims[1] = channels;
  Array result(dims);
  const auto all = static_cast<std::size_t>(array.dims[1]);
  const std::size_t space = array.data.size() / static_cast<std::size_t>(array.dims[0]) / all;
  const std::size_t part = static_cast<std::size_t>(channels) * space;
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    result.data[i] = array.data[i / part * all * space + static_cast<std::size_t>(begin) * space + i % part];
  }
  return result;
}

class ConcatenationTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(ConcatenationTest, EachInputIsASliceOfTheOutput) {
  for (const Case& of : kCases) {
    for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
      SCOPED_TRACE(to_string(of.shape));
      const LayerCase layer = layer_case(of);
      OpHarness op(*library_, layer, mode);
      for (std::uint32_t i = 0; i < layer.inputs.size(); ++i) {
        op.set(input(i), random_array(layer.inputs[i].dims, 300 + i));
      }
      op.run(op.writer(kY));
      const Array y = op.get(kY);
      std::int64_t begin = 0;
      for (std::uint32_t i = 0; i < layer.inputs.size(); ++i) {
        expect_equal(slice(y, begin, of.channels[i]), random_array(layer.inputs[i].dims, 300 + i));
        begin += of.channels[i];
      }
      EXPECT_EQ(op.recipes().size(), mode == Mode::kTraining ? 1 + of.channels.size() : 1);
    }
  }
}

TEST_P(ConcatenationTest, EachGradientIsASliceOfTheOutputs) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(to_string(of.shape));
    OpHarness op(*library_, layer_case(of));
    const Array dy = random_array(of.shape, 310);
    op.set(kDY, dy);
    std::int64_t begin = 0;
    for (std::uint32_t i = 0; i < of.channels.size(); ++i) {
      EXPECT_EQ(op.recipe(op.writer(gradient(i))).writes.size(), 1U);
      op.run(op.writer(gradient(i)));
      expect_equal(op.get(gradient(i)), slice(dy, begin, of.channels[i]));
      begin += of.channels[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, ConcatenationTest, ::testing::ValuesIn(tested_libraries({1, 2, 3})),
                         [](const auto& test) { return test.param.name(); });

TEST_P(ConcatenationTest, RefusesWhatDiffersInMoreThanChannels) {
  const auto recipe = [&](const std::vector<Dims>& inputs, const Dims& output) {
    std::vector<TensorType> types(inputs.size());
    std::ranges::transform(inputs, types.begin(), [](const Dims& dims) { return TensorType{.dims = dims}; });
    const TensorType made{.dims = output};
    return library_->catalog().recipe(ConcatenationSpec{}, types, std::array{made}, Mode::kTraining);
  };
  EXPECT_NO_THROW(recipe({{2, 3, 4, 4}, {2, 5, 4, 4}}, {2, 8, 4, 4}));
  EXPECT_THROW(recipe({{2, 3, 4, 4}}, {2, 3, 4, 4}), InvalidArgument);
  EXPECT_THROW(recipe({{2, 3, 4, 4}, {2, 5, 4, 5}}, {2, 8, 4, 4}), InvalidArgument);
  EXPECT_THROW(recipe({{2, 3, 4, 4}, {1, 5, 4, 4}}, {2, 8, 4, 4}), InvalidArgument);
  EXPECT_THROW(recipe({{2, 3, 4, 4}, {2, 5, 4}}, {2, 8, 4, 4}), InvalidArgument);
  EXPECT_THROW(recipe({{2, 3, 4, 4}, {2, 5, 4, 4}}, {2, 9, 4, 4}), InvalidArgument);
  EXPECT_THROW(recipe({{2}, {2}}, {4}), InvalidArgument);
}

// The expected slices are written out by hand; the other tests rely on this reference.
TEST(ReferenceConcatenation, SlicesAreOfChannels) {
  Array x({2, 3, 2});
  x.data = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(slice(x, 1, 2).data, (std::vector<double>{2, 3, 4, 5, 8, 9, 10, 11}));
  EXPECT_EQ(slice(x, 0, 1).data, (std::vector<double>{0, 1, 6, 7}));
}

}  // namespace
}  // namespace vdnn::testing::concatenation_test
