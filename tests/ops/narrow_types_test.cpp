// Layers over fp16 and bf16. Those with filters are held to the reference in double precision, with a bound
// that follows from the unit roundoffs of fp32, in which sums are taken, and of the type that results are
// rounded to. All others have to make what the same layer makes in fp32 of the same numbers, rounded to the
// nearest: the fp32 layers are held to the reference by the tests of their own.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/filter_layer_check.h"
#include "tests/ops/layer_cases.h"
#include "vdnn/cpu_ops.h"

namespace vdnn::testing {
namespace {

using reference::Array;
using reference::rounded;

struct Case {
  LayerCase layer;
  DataType type;
  int threads;
};

std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  return test_name(test.param.layer.name + "_" + to_string(test.param.type), test.param.threads);
}

std::vector<Case> in_every_type(const std::vector<LayerCase>& layers) {
  std::vector<Case> cases;
  for (const LayerCase& layer : layers) {
    for (const DataType type : {DataType::kBf16, DataType::kF16}) {
      for (const int threads : {1, 2}) {
        cases.push_back({in_type(layer, type), type, threads});
      }
    }
  }
  return cases;
}

class NarrowLayer : public ::testing::TestWithParam<Case> {
 protected:
  const LayerCase& layer() const { return GetParam().layer; }
  DataType type() const { return GetParam().type; }
  std::unique_ptr<OpLibrary> library_ = make_cpu_ops({.threads = GetParam().threads});
};

// --- layers with filters -----------------------------------------------------------------------------------

class NarrowFilterLayer : public NarrowLayer {};

TEST_P(NarrowFilterLayer, EveryAlgorithmIsWithinTheErrorBound) {
  expect_filter_layer_within_bounds(*library_, layer());
}

INSTANTIATE_TEST_SUITE_P(Layers, NarrowFilterLayer, ::testing::ValuesIn(in_every_type(filter_layer_cases())),
                         name_of);

// --- all others --------------------------------------------------------------------------------------------

std::vector<LayerCase> other_layers() {
  std::vector<LayerCase> layers{relu_case({2, 7, 3, 5}), add_case({4, 33, 13, 11})};
  layers.push_back(same_shape_case("leaky_relu", ReluSpec{0.25F}, {2, 3, 5}));
  layers.push_back(same_shape_case("sigmoid", SigmoidSpec{}, {1, 3, 4, 5, 6}));
  layers.push_back(same_shape_case("dropout", DropoutSpec{.probability = 0.3F, .key = 5}, {3, 7, 5, 3}));
  layers.push_back(same_shape_case("batch_normalization", BatchNormalizationSpec{}, {4, 6, 5, 3}));
  layers.push_back(
      same_shape_case("batch_normalization_of_volumes", BatchNormalizationSpec{}, {2, 5, 3, 4, 2}));
  layers.push_back(same_shape_case("group_normalization", GroupNormalizationSpec{.groups = 3}, {2, 6, 5, 3}));
  layers.push_back(same_shape_case("lrn", LrnSpec{}, {2, 7, 4, 3}));
  for (const PoolingMode mode : {PoolingMode::kMax, PoolingMode::kAverage}) {
    const std::string name = mode == PoolingMode::kMax ? "max_pooling" : "average_pooling";
    layers.push_back(pooling_case(name, {2, 5, 9, 7}, {mode, {3, 3}, {2, 2}, {1, 1}}));
    layers.push_back(pooling_case(name + "_of_lines", {2, 5, 9}, {mode, {2}, {2}, {0}}));
    layers.push_back(
        pooling_case(name + "_of_volumes", {1, 17, 4, 7, 6}, {mode, {2, 2, 3}, {2, 3, 3}, {0, 1, 1}}));
  }
  for (const UpsamplingMode mode : {UpsamplingMode::kNearest, UpsamplingMode::kLinear}) {
    layers.push_back(
        upsampling_case(mode == UpsamplingMode::kLinear ? "linear_upsampling" : "nearest_upsampling",
                        {2, 3, 4, 5}, {mode, {2, 3}}));
  }
  LayerCase concatenation{.name = "concatenation", .spec = ConcatenationSpec{}, .inputs = {}, .output = {}};
  concatenation.inputs = {{.dims = {2, 3, 4, 5}}, {.dims = {2, 6, 4, 5}}};
  concatenation.output = {.dims = {2, 9, 4, 5}};
  layers.push_back(std::move(concatenation));
  return layers;
}

class NarrowOtherLayer : public NarrowLayer {
 protected:
  // Every operand that an op reads and none makes has the same numbers in both.
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
        wide.set(written, narrow.get(written));  // what ops that follow read
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
    for (OpId id = 0; id < op.recipes().size() && op.tape().op(id).phase == Phase::kForward; ++id) {
      op.run(id);  // makes what backward reads
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layers, NarrowOtherLayer, ::testing::ValuesIn(in_every_type(other_layers())),
                         name_of);

// --- conversions -------------------------------------------------------------------------------------------

TEST(Conversion, RoundsToTheNearestAndIsUndoneInBackward) {
  const auto library = make_cpu_ops({.threads = 2});
  const Dims dims{2, 5, 7, 33};
  for (const DataType from : {DataType::kF32, DataType::kBf16, DataType::kF16}) {
    for (const DataType to : {DataType::kF32, DataType::kBf16, DataType::kF16}) {
      SCOPED_TRACE(std::string(to_string(from)) + " to " + to_string(to));
      OpHarness op(*library, {.name = "conversion",
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
  }
}

// --- updates -----------------------------------------------------------------------------------------------

// The update makes the same parameter as without a copy, and the copy of it.
TEST(NarrowCopies, AreTheUpdatedParameterRounded) {
  const Dims dims{7, 5, 3, 3};
  for (const int threads : {1, 2}) {
    const auto library = make_cpu_ops({.threads = threads});
    for (const OptimizerSpec& optimizer :
         {OptimizerSpec(SgdSpec{.momentum = 0.9F}), OptimizerSpec(AdamSpec{})}) {
      for (const DataType type : {DataType::kBf16, DataType::kF16}) {
        for (const bool clipped : {false, true}) {
          ParameterRecipe parameter{.name = "filter", .type = {.dims = dims}, .storage_layout = "dense"};
          parameter.storage_bytes = parameter.type.bytes();
          OpHarness plain(*library, optimizer, parameter, clipped);
          parameter.copy = type;
          OpHarness copied(*library, optimizer, parameter, clipped);
          for (OpHarness* const op : {&plain, &copied}) {
            op->set(kFilter, random_array(dims, 501));
            op->set(kDFilter, random_array(dims, 502));
            for (const Operand& written : op->recipe(0).writes) {
              if (written.role == OperandRole::kState) {
                op->set(written, Array({static_cast<std::int64_t>(parameter.stored_elements())}));
              }
            }
            if (clipped) {
              Array norm({2});
              norm.data = {2, 0.5};
              op->set({OperandRole::kGradientNorm, 0}, norm);
            }
            op->run(0, {.algorithm = 0, .in_place = {}, .scalars = {.learning_rate = 0.1F}});
          }
          expect_equal(copied.get(kFilter), plain.get(kFilter));
          expect_equal(copied.get({OperandRole::kParameterCopy, 0}), rounded(plain.get(kFilter), type));
        }
      }
    }
  }
}

}  // namespace
}  // namespace vdnn::testing
