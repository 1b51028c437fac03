// The catalog refuses unsupported layers and gives the reason.

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "tests/ops/layer_cases.h"
#include "tests/ops/loss_cases.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

struct BadLayer {
  LayerCase layer;
  const char* says;  // part of the message
};

LayerCase with(LayerCase layer, const std::string& name, const std::function<void(LayerCase&)>& change) {
  layer.name = name;
  change(layer);
  return layer;
}

std::vector<BadLayer> bad_layers() {
  const LayerCase convolution = convolution_case("", {2, 3, 8, 8}, {4, {3, 3}, {1, 1}, {1, 1}});
  const LayerCase pooling = pooling_case("", {2, 3, 8, 8}, {PoolingMode::kMax, {2, 2}, {2, 2}, {0, 0}});
  const LayerCase connected = fully_connected_case("", {2, 8}, {4});
  const LayerCase loss = class_loss_case(SoftmaxCrossEntropySpec{}, {4, 3});
  const auto convolution_with = [&](const std::string& name, const ConvolutionSpec& spec) {
    return with(convolution, name, [&](LayerCase& layer) { layer.spec = spec; });
  };
  const auto convolution_of = [&](const std::string& name, std::int64_t groups, const Dims& dilation) {
    return convolution_with(name, {4, {3, 3}, {1, 1}, {1, 1}, dilation, groups});
  };
  const LayerCase transposed = transposed_convolution_case("", {2, 3, 4, 5}, {4, {3, 3}, {2, 2}, {1, 1}});
  const LayerCase upsampled = upsampling_case("", {2, 3, 4, 5}, {UpsamplingMode::kLinear, {2, 3}});
  const LayerCase lrn = same_shape_case("", LrnSpec{}, {2, 3, 4, 5});
  const auto pooling_with = [&](const std::string& name, const PoolingSpec& spec) {
    return with(pooling, name, [&](LayerCase& layer) { layer.spec = spec; });
  };
  return {
      {with(convolution, "channels_first_input",
            [](LayerCase& l) { l.inputs[0].layout = Layout::kChannelsFirst; }),
       "channels last"},
      {with(convolution, "channels_first_output",
            [](LayerCase& l) { l.output.layout = Layout::kChannelsFirst; }),
       "channels last"},
      {with(convolution, "integers", [](LayerCase& l) { l.inputs[0].data_type = DataType::kI32; }),
       "floating-point"},
      {with(convolution, "two_inputs", [](LayerCase& l) { l.inputs.push_back(l.inputs[0]); }), "expected"},
      {with(convolution, "wrong_output", [](LayerCase& l) { l.output.dims[3] = 9; }), "2x4x8x9"},
      {with(convolution, "no_space",
            [](LayerCase& l) {
              l.inputs[0].dims = {2, 3};
            }),
       "spatial dimensions"},
      {convolution_with("no_filters", {0, {3, 3}, {1, 1}, {1, 1}}), "0 filters"},
      {convolution_with("no_stride", {4, {3, 3}, {0, 1}, {1, 1}}), "stride 0"},
      {convolution_with("negative_padding", {4, {3, 3}, {1, 1}, {-1, 1}}), "padding -1"},
      {convolution_with("kernel_rank", {4, {3}, {1, 1}, {1, 1}}), "2 entries"},
      {convolution_with("kernel_too_large", {4, {11, 3}, {1, 1}, {1, 1}}), "kernel 11"},
      {convolution_of("groups_of_channels", 2, {}), "2 groups"},
      {convolution_of("groups_of_filters", 3, {}), "3 groups"},
      {convolution_of("no_groups", 0, {}), "0 groups"},
      {convolution_of("no_dilation", 1, {1, 0}), "dilation 0"},
      {convolution_of("dilation_rank", 1, {2}), "2 entries"},
      {convolution_of("dilation_too_large", 1, {5, 1}), "dilation 5"},
      {with(transposed, "transposed_output", [](LayerCase& l) { l.output.dims[2] = 8; }), "makes 2x4x7x9"},
      {with(transposed, "transposed_padding",
            [](LayerCase& l) {
              l.spec = TransposedConvolutionSpec{4, {3, 3}, {2, 2}, {3, 1}};
            }),
       "padding 3"},
      {with(upsampled, "upsampled_output", [](LayerCase& l) { l.output.dims[3] = 14; }), "makes 2x3x8x15"},
      {with(upsampled, "no_factor",
            [](LayerCase& l) {
              l.spec = UpsamplingSpec{UpsamplingMode::kLinear, {0, 3}};
            }),
       "factor 0"},
      {with(upsampled, "factor_rank",
            [](LayerCase& l) {
              l.spec = UpsamplingSpec{UpsamplingMode::kLinear, {2}};
            }),
       "a factor for each"},
      {with(lrn, "lrn_even", [](LayerCase& l) { l.spec = LrnSpec{.size = 4}; }), "must be odd"},
      {with(lrn, "lrn_shape", [](LayerCase& l) { l.output.dims[1] = 4; }), "normalisation"},
      {with(same_shape_case("", LrnSpec{}, {2, 3}), "lrn_no_space", [](LayerCase&) {}),
       "no spatial dimensions"},
      {pooling_with("window_in_padding", {PoolingMode::kAverage, {2, 2}, {2, 2}, {2, 0}}), "padding 2"},
      {pooling_with("no_kernel", {PoolingMode::kMax, {}, {}, {}}), "entries"},
      {with(pooling, "pooled_channels", [](LayerCase& l) { l.output.dims[1] = 4; }), "2x4x4x4"},
      {with(connected, "no_outputs", [](LayerCase& l) { l.spec = FullyConnectedSpec{0}; }), "0 outputs"},
      {with(connected, "vector_input", [](LayerCase& l) { l.inputs[0].dims = {8}; }), "outputs from 8"},
      {with(connected, "wrong_features",
            [](LayerCase& l) {
              l.output.dims = {2, 5};
            }),
       "2x5"},
      {with(relu_case({2, 3}), "relu_shape",
            [](LayerCase& l) {
              l.output.dims = {2, 4};
            }),
       "relu"},
      {with(add_case({2, 3}), "add_shapes",
            [](LayerCase& l) {
              l.inputs[1].dims = {3, 2};
            }),
       "add"},
      {with(add_case({2, 3}), "add_of_one", [](LayerCase& l) { l.inputs.pop_back(); }), "add"},
      {with(loss, "float_targets", [](LayerCase& l) { l.inputs[1].data_type = DataType::kF32; }), "targets"},
      {with(loss, "fewer_targets", [](LayerCase& l) { l.inputs[1].dims = {3}; }), "targets"},
      {with(loss, "two_metrics", [](LayerCase& l) { l.output.dims = {2}; }), "makes 3, not 2"},
      {with(class_loss_case(SoftmaxCrossEntropySpec{}, {2, 3, 4, 5}), "label_map_of_another_size",
            [](LayerCase& l) { l.inputs[1].dims[1] = 3; }),
       "targets"},
      {with(class_loss_case(SoftmaxCrossEntropySpec{}, {2, 3, 4, 5}), "logits_channels_first",
            [](LayerCase& l) { l.inputs[0].layout = Layout::kChannelsFirst; }),
       "channels last"},
      {with(loss, "no_targets", [](LayerCase& l) { l.inputs.pop_back(); }), "2 expected, got 1"},
      {with(loss, "no_weight", [](LayerCase& l) { l.spec = SoftmaxCrossEntropySpec{.weight = 0}; }),
       "weight"},
      {with(loss, "dice_without_smoothing", [](LayerCase& l) { l.spec = DiceCrossEntropySpec{.smooth = 0}; }),
       "smooth"},
      {with(loss, "dice_of_negative_weight",
            [](LayerCase& l) { l.spec = DiceCrossEntropySpec{.weight = -1}; }),
       "weight"},
      {with(loss, "squared_error_of_classes", [](LayerCase& l) { l.spec = MeanSquaredErrorSpec{}; }), "fp32"},
      {with(regression_case(MeanSquaredErrorSpec{}, {4, 3}), "squared_error_of_two_shapes",
            [](LayerCase& l) {
              l.inputs[1].dims = {3, 4};
            }),
       "one type"},
      {with(regression_case(MeanSquaredErrorSpec{}, {4, 3}), "squared_error_without_targets",
            [](LayerCase& l) { l.inputs.pop_back(); }),
       "2 expected, got 1"},
      {with(relu_case({2, 3}), "optimizer", [](LayerCase& l) { l.spec = SgdSpec{}; }),
       "unsupported kind of layer"}};
}

class CpuCatalogRefuses : public ::testing::TestWithParam<BadLayer> {};

TEST_P(CpuCatalogRefuses, WithAReason) {
  const auto library = make_cpu_ops({});
  const LayerCase& layer = GetParam().layer;
  try {
    library->catalog().recipe(layer.spec, layer.inputs, std::array{layer.output}, Mode::kTraining);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CpuCatalogRefuses, ::testing::ValuesIn(bad_layers()),
                         [](const auto& test) { return test.param.layer.name; });

TEST(CpuCatalog, NamesItsSource) {
  EXPECT_TRUE(make_cpu_ops({})->catalog().algorithms_source().starts_with("onednn 2."));
}

}  // namespace
}  // namespace vdnn::testing
