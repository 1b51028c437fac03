// Layers over fp16 and bf16. Those with filters are compared with the reference in double precision. The
// bound follows from the unit roundoff of fp32, in which sums are computed, and from that of the result's
// type. The result of any other layer must equal the rounded result of the same layer in fp32 on the same
// numbers. Other tests compare the fp32 layers with the reference.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/ops/filter_layer_check.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing::narrow_types_test {
namespace {

using reference::Array;
using reference::rounded;

struct Case {
  LayerCase layer;
  DataType type;
  TestedLibrary library;
};

std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  return test.param.layer.name + "_" + to_string(test.param.type) + "_" + test.param.library.name();
}

std::vector<TestedLibrary> all_libraries() {
  return tested_libraries({1, 2});
}
// The tested libraries for layers that a vendor's library computes.
std::vector<TestedLibrary> vendor_libraries() {
  return vendor_tested_libraries({1, 2});
}

std::vector<Case> in_every_type(const std::vector<LayerCase>& layers,
                                const std::vector<TestedLibrary>& libraries) {
  std::vector<Case> cases;
  for (const LayerCase& layer : layers) {
    for (const DataType type : {DataType::kBf16, DataType::kF16}) {
      for (const TestedLibrary& library : libraries) {
        cases.push_back({in_type(layer, type), type, library});
      }
    }
  }
  return cases;
}

class NarrowLayer : public ::testing::TestWithParam<Case> {
 protected:
  const LayerCase& layer() const { return GetParam().layer; }
  DataType type() const { return GetParam().type; }
  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
};

// --- layers with filters -----------------------------------------------------------------------------------

class NarrowFilterLayer : public NarrowLayer {};

TEST_P(NarrowFilterLayer, EveryAlgorithmIsWithinTheErrorBound) {
  RoundedOnTheWay rounded;
  if (GetParam().library.device == "cuda") {
    // The libraries write products in the type of the maps, and our kernel then adds the bias. cuDNN also
    // writes the gradient of a filter in that type.
    rounded.products = true;
    rounded.filter_gradient =
        std::holds_alternative<FullyConnectedSpec>(layer().spec) ? DataType::kF32 : type();
  }
  expect_filter_layer_within_bounds(*library_, layer(), rounded);
}

INSTANTIATE_TEST_SUITE_P(Layers, NarrowFilterLayer,
                         ::testing::ValuesIn(in_every_type(filter_layer_cases(), vendor_libraries())),
                         name_of);

// --- all others --------------------------------------------------------------------------------------------

LayerCase concatenation_case(const std::string& name, const Dims& output,
                             const std::vector<std::int64_t>& channels) {
  LayerCase layer{.name = name, .spec = ConcatenationSpec{}, .inputs = {}, .output = {.dims = output}};
  for (const std::int64_t own : channels) {
    layer.inputs.push_back({.dims = output});
    layer.inputs.back().dims[1] = own;
  }
  return layer;
}

// Numbers of elements below, at and above one memory access of a GPU.
std::vector<LayerCase> small_layers() {
  std::vector<LayerCase> layers;
  for (const std::int64_t count : {1, 7, 8, 9, 15}) {
    const std::string behind = "_of_" + std::to_string(count);
    for (LayerCase layer : {relu_case({count}), add_case({count})}) {
      layer.name += behind;
      layers.push_back(std::move(layer));
    }
    layers.push_back(same_shape_case("sigmoid" + behind, SigmoidSpec{}, {count}));
    layers.push_back(
        same_shape_case("dropout" + behind, DropoutSpec{.probability = 0.3F, .key = 5}, {3, count}));
  }
  return layers;
}

// Numbers of channels that fill whole memory accesses of a GPU, and others.
std::vector<LayerCase> channel_layers() {
  std::vector<LayerCase> layers;
  for (const std::int64_t channels : {5, 6, 12, 16}) {
    const std::string behind = "_of_" + std::to_string(channels);
    layers.push_back(
        same_shape_case("batch_normalization" + behind, BatchNormalizationSpec{}, {4, channels, 5, 3}));
    layers.push_back(same_shape_case("synchronized_batch_normalization" + behind,
                                     BatchNormalizationSpec{.ranks = 3}, {4, channels, 5, 3}));
    for (const UpsamplingMode mode : {UpsamplingMode::kNearest, UpsamplingMode::kLinear}) {
      const std::string name = mode == UpsamplingMode::kLinear ? "linear_upsampling" : "nearest_upsampling";
      layers.push_back(upsampling_case(name + behind, {2, channels, 4, 5}, {mode, {2, 3}}));
    }
  }
  for (const std::int64_t groups : {1, 2, 4, 16}) {
    layers.push_back(same_shape_case("group_normalization_of_" + std::to_string(groups) + "_groups",
                                     GroupNormalizationSpec{.groups = groups}, {2, 16, 5, 3}));
  }
  layers.push_back(concatenation_case("concatenation", {2, 9, 4, 5}, {3, 6}));
  layers.push_back(concatenation_case("concatenation_of_pairs", {2, 8, 4, 5}, {2, 6}));
  layers.push_back(concatenation_case("concatenation_of_eights", {2, 24, 4, 5}, {16, 8}));
  return layers;
}

std::vector<LayerCase> other_layers() {
  std::vector<LayerCase> layers{relu_case({2, 7, 3, 5}), add_case({4, 33, 13, 11})};
  layers.push_back(same_shape_case("leaky_relu", ReluSpec{0.25F}, {2, 3, 5}));
  layers.push_back(same_shape_case("sigmoid", SigmoidSpec{}, {1, 3, 4, 5, 6}));
  layers.push_back(same_shape_case("dropout", DropoutSpec{.probability = 0.3F, .key = 5}, {3, 7, 5, 3}));
  layers.push_back(same_shape_case("batch_normalization_of_32", BatchNormalizationSpec{}, {3, 32, 7, 5}));
  layers.push_back(
      same_shape_case("batch_normalization_of_volumes", BatchNormalizationSpec{}, {2, 5, 3, 4, 2}));
  layers.push_back(same_shape_case("group_normalization", GroupNormalizationSpec{.groups = 3}, {2, 6, 5, 3}));
  for (const std::vector<LayerCase>& more : {small_layers(), channel_layers()}) {
    layers.insert(layers.end(), more.begin(), more.end());
  }
  return layers;
}

std::vector<LayerCase> pooling_and_lrn() {
  std::vector<LayerCase> layers{same_shape_case("lrn", LrnSpec{}, {2, 7, 4, 3})};
  for (const PoolingMode mode : {PoolingMode::kMax, PoolingMode::kAverage}) {
    const std::string name = mode == PoolingMode::kMax ? "max_pooling" : "average_pooling";
    layers.push_back(pooling_case(name, {2, 5, 9, 7}, {mode, {3, 3}, {2, 2}, {1, 1}}));
    layers.push_back(pooling_case(name + "_of_lines", {2, 5, 9}, {mode, {2}, {2}, {0}}));
    layers.push_back(
        pooling_case(name + "_of_volumes", {1, 17, 4, 7, 6}, {mode, {2, 2, 3}, {2, 3, 3}, {0, 1, 1}}));
  }
  return layers;
}

class NarrowOtherLayer : public NarrowLayer {
 protected:
  // Sets an operand that no op makes to the same numbers in both harnesses.
  void set_both(OpHarness& narrow, OpHarness& wide, const Operand& operand, const Array& numbers) {
    narrow.set(operand, numbers);
    wide.set(operand, numbers);
  }

  static bool is_map(const Operand& operand) {
    return operand.role == OperandRole::kInput || operand.role == OperandRole::kOutput ||
           operand.role == OperandRole::kInputGradient || operand.role == OperandRole::kOutputGradient;
  }
};

TEST_P(NarrowOtherLayer, MakesWhatFp32MakesRoundedToItsType) {
  OpHarness narrow(*library_, layer());
  OpHarness wide(*library_, in_type(layer(), DataType::kF32));
  std::uint32_t seed = 300;
  for (std::uint32_t input = 0; input < layer().inputs.size(); ++input) {
    set_both(narrow, wide, {OperandRole::kInput, input},
             rounded(distinct_array(layer().inputs[input].dims, seed++), type()));
  }
  set_both(narrow, wide, kDY, rounded(random_array(layer().output.dims, seed++), type()));
  const std::vector<ParameterRecipe> parameters =
      library_->catalog()
          .recipe(layer().spec, layer().inputs, {&layer().output, 1}, Mode::kTraining)
          .parameters;
  for (std::uint32_t index = 0; index < parameters.size(); ++index) {
    ASSERT_FALSE(parameters[index].copy) << "of normalisations";
    set_both(narrow, wide, {OperandRole::kParameter, index},
             random_array(parameters[index].type.dims, seed++));
  }
  for (OpId op = 0; op < narrow.recipes().size(); ++op) {
    SCOPED_TRACE("op " + std::to_string(op));
    narrow.run(op);
    wide.run(op);
    for (const Operand& written : narrow.recipe(op).writes) {
      if (is_map(written)) {
        expect_equal(narrow.get(written), rounded(wide.get(written), type()));
        wide.set(written, narrow.get(written));  // later ops read it
      } else if (written.role != OperandRole::kSaved ||
                 layer().name.find("normalization") != std::string::npos) {
        expect_equal(narrow.get(written), wide.get(written));
      }
    }
  }
}

TEST_P(NarrowOtherLayer, InPlaceIsOutOfPlace) {
  OpHarness op(*library_, layer());
  const std::vector<ParameterRecipe> parameters =
      library_->catalog()
          .recipe(layer().spec, layer().inputs, {&layer().output, 1}, Mode::kTraining)
          .parameters;
  expect_in_place_equals_apart(op, [&] {
    for (std::uint32_t input = 0; input < layer().inputs.size(); ++input) {
      op.set({OperandRole::kInput, input}, distinct_array(layer().inputs[input].dims, 601 + input));
    }
    op.set(kDY, random_array(layer().output.dims, 611));
    for (std::uint32_t index = 0; index < parameters.size(); ++index) {
      op.set({OperandRole::kParameter, index}, random_array(parameters[index].type.dims, 621 + index));
    }
    for (OpId id = 0; id < op.recipes().size(); ++id) {
      op.run(id);  // makes what later ops read
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layers, NarrowOtherLayer,
                         ::testing::ValuesIn(in_every_type(other_layers(), all_libraries())), name_of);
INSTANTIATE_TEST_SUITE_P(VendorsLayers, NarrowOtherLayer,
                         ::testing::ValuesIn(in_every_type(pooling_and_lrn(), vendor_libraries())), name_of);

// --- conversions -------------------------------------------------------------------------------------------

class ConversionTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  void expect_both_ways(const Dims& dims, DataType from, DataType to) {
    OpHarness op(*library_, {.name = "conversion",
                             .spec = ConversionSpec{.to = to},
                             .inputs = {{.data_type = from, .dims = dims}},
                             .output = {.data_type = to, .dims = dims}});
    const Array x = rounded(random_array(dims, 401), from);
    const Array dy = rounded(random_array(dims, 402), to);
    op.set(kX, x);
    op.set(kDY, dy);
    op.run(op.writer(kY));
    expect_equal(op.get(kY), rounded(x, to));
    op.run(op.writer(kDX));
    expect_equal(op.get(kDX), rounded(dy, from));
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(ConversionTest, RoundsToTheNearestAndIsUndoneInBackward) {
  for (const Dims& dims : {Dims{2, 5, 7, 33}, Dims{1}, Dims{7}, Dims{8}, Dims{9}, Dims{15}}) {
    for (const DataType from : {DataType::kF32, DataType::kBf16, DataType::kF16}) {
      for (const DataType to : {DataType::kF32, DataType::kBf16, DataType::kF16}) {
        SCOPED_TRACE(to_string(dims) + ", " + to_string(from) + " to " + to_string(to));
        expect_both_ways(dims, from, to);
      }
    }
  }
}

// Halfway cases, numbers that only just round to a finite number or to zero, and numbers that overflow.
TEST_P(ConversionTest, MeetsTheEndsOfFp16) {
  OpHarness op(*library_, {.name = "conversion",
                           .spec = ConversionSpec{.to = DataType::kF16},
                           .inputs = {{.dims = {9}}},
                           .output = {.data_type = DataType::kF16, .dims = {9}}});
  Array x({9});
  x.data = {65519, 65520, -1e30, 0x1p-25, 0x1.8p-25, 1 + 0x1p-11, 1 + 0x1.8p-10, std::nan(""), -0.0};
  op.set(kX, x);
  op.run(op.writer(kY));
  const Array y = op.get(kY);
  constexpr double kBeyond = std::numeric_limits<double>::infinity();
  EXPECT_EQ(std::vector<double>(y.data.begin(), y.data.begin() + 7),
            (std::vector<double>{65504, kBeyond, -kBeyond, 0, 0x1p-24, 1, 1 + 0x1p-9}));
  EXPECT_TRUE(std::isnan(y.data[7]));
  EXPECT_TRUE(std::signbit(y.data[8]));
}

INSTANTIATE_TEST_SUITE_P(Libraries, ConversionTest, ::testing::ValuesIn(all_libraries()),
                         [](const auto& test) { return test.param.name(); });

// --- updates -----------------------------------------------------------------------------------------------

// An update with a narrow copy makes the same parameter as one without, and also makes the copy.
class NarrowCopies : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  static void update(OpHarness& op, const ParameterRecipe& parameter, bool clipped) {
    op.set(kFilter, random_array(parameter.type.dims, 501));
    op.set(kDFilter, random_array(parameter.type.dims, 502));
    for (const Operand& written : op.recipe(0).writes) {
      if (written.role == OperandRole::kState) {
        op.set(written, Array({static_cast<std::int64_t>(parameter.stored_elements())}));
      }
    }
    if (clipped) {
      Array norm({2});
      norm.data = {2, 0.5};
      op.set({OperandRole::kGradientNorm, 0}, norm);
    }
    op.run(0, {.algorithm = 0, .in_place = {}, .scalars = {.learning_rate = 0.1F}});
  }
  void expect_copied(const OptimizerSpec& optimizer, const Dims& dims, DataType type, bool clipped) {
    ParameterRecipe parameter{.name = "filter", .type = {.dims = dims}, .storage_layout = "dense"};
    parameter.storage_bytes = parameter.type.bytes();
    OpHarness plain(*library_, optimizer, parameter, clipped);
    parameter.copy = type;
    OpHarness copied(*library_, optimizer, parameter, clipped);
    update(plain, parameter, clipped);
    update(copied, parameter, clipped);
    expect_equal(copied.get(kFilter), plain.get(kFilter));
    expect_equal(copied.get({OperandRole::kParameterCopy, 0}), rounded(plain.get(kFilter), type));
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(NarrowCopies, AreTheUpdatedParameterRounded) {
  for (const OptimizerSpec& optimizer :
       {OptimizerSpec(SgdSpec{.momentum = 0.9F}), OptimizerSpec(AdamSpec{})}) {
    for (const Dims& dims : {Dims{7, 5, 3, 3}, Dims{8, 3}, Dims{1}}) {
      for (const DataType type : {DataType::kBf16, DataType::kF16}) {
        for (const bool clipped : {false, true}) {
          expect_copied(optimizer, dims, type, clipped);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, NarrowCopies, ::testing::ValuesIn(all_libraries()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace vdnn::testing::narrow_types_test
