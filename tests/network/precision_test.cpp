#include "vdnn/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "vdnn/classic_catalog.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn::precision_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A branch that is read twice, a normalisation, and a loss.
Network forked() {
  NetworkBuilder net("forked", {2, 3, 8, 8});
  const Tensor x =
      net.convolution("conv1", net.input(),
                      {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .dilation = {}});
  const Tensor y = net.batch_normalization("norm", x);
  const Tensor sum = net.add("sum", net.relu("relu", y), x);
  net.softmax_cross_entropy("loss", net.fully_connected("fc", sum, {.outputs = 5}));
  return std::move(net).build();
}

std::vector<std::string> layer_names(const Network& network) {
  std::vector<std::string> names;
  for (const Layer& layer : network.layers()) {
    names.push_back(layer.name);
  }
  return names;
}

// One text per feature map: "name type".
std::vector<std::string> typed_maps(const Network& network) {
  std::vector<std::string> maps;
  for (std::uint32_t id = 0; id < network.feature_maps(); ++id) {
    maps.push_back(network.feature_map_name(id) + " " + to_string(network.type(id).data_type));
  }
  return maps;
}

TEST(Precision, Fp32ChangesNothing) {
  const Network network = forked();
  const Network same = network.with_precision({});
  EXPECT_EQ(layer_names(same), layer_names(network));
  EXPECT_EQ(typed_maps(same), typed_maps(network));
}

TEST(Precision, ConversionsStandWhereTypesMeetAndNowhereElse) {
  const Network typed = forked().with_precision({.storage = DataType::kBf16, .fp32_layers = {}});
  EXPECT_THAT(layer_names(typed),
              ElementsAre("images.to_bf16", "conv1", "norm", "relu", "sum", "fc", "fc.y.to_fp32", "loss"));
  EXPECT_THAT(typed_maps(typed), ElementsAre("images fp32", "conv1.y bf16", "norm.y bf16", "relu.y bf16",
                                             "sum.y bf16", "fc.y bf16", "targets int32", "loss.metrics fp32",
                                             "images.bf16 bf16", "fc.y.fp32 fp32"));
}

// All readers of a type share one conversion, which comes before the first reader.
TEST(Precision, ExceptionsAreNamedOrOfAKind) {
  const Network typed = forked().with_precision(
      {.storage = DataType::kF16, .fp32_layers = {"batch_normalization", "relu", "fc"}});
  EXPECT_THAT(layer_names(typed), ElementsAre("images.to_fp16", "conv1", "conv1.y.to_fp32", "norm", "relu",
                                              "relu.y.to_fp16", "sum", "sum.y.to_fp32", "fc", "loss"));
}

TEST(Precision, KeepsTypesForAnotherBatch) {
  const Network typed =
      forked().with_precision({.storage = DataType::kBf16, .fp32_layers = {"norm"}}).with_batch(6);
  EXPECT_EQ(typed.type(1).data_type, DataType::kBf16);
  EXPECT_EQ(typed.type(1).dims, (Dims{6, 4, 8, 8}));
}

TEST(Precision, TypesOnceAndThenKeepsThem) {
  const Network typed = forked().with_precision({.storage = DataType::kBf16, .fp32_layers = {}});
  EXPECT_EQ(typed_maps(typed.with_precision({})), typed_maps(typed));
  EXPECT_THAT([&] { typed.with_precision({.storage = DataType::kBf16, .fp32_layers = {}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has conversions already")));
}

TEST(Precision, RefusesWhatNamesNoLayerAndWhatIsNoFloatingPointType) {
  const Network network = forked();
  EXPECT_THAT([&] { network.with_precision({.storage = DataType::kBf16, .fp32_layers = {"conv2"}}); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("network forked"), HasSubstr("'conv2'"), HasSubstr("conv1"))));
  EXPECT_THAT([&] { network.with_precision({.storage = DataType::kBf16, .fp32_layers = {"lrn"}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no layer or kind of layer 'lrn'")));
  EXPECT_THAT([&] { network.with_precision({.storage = DataType::kU8, .fp32_layers = {}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("uint8")));
}

// --- the tape ----------------------------------------------------------------------------------------------

TEST(PrecisionTape, FiltersHaveCopiesThatTheirUpdateWrites) {
  const TrainingOptions training{.precision = {.storage = DataType::kBf16, .fp32_layers = {}}};
  const auto tape = lower_to_tape(forked(), *make_classic_catalog(), training);
  const ValueId copy = tape->find_value("conv1.filter.bf16");
  const ValueId filter = tape->find_value("conv1.filter");
  ASSERT_NE(copy, kNone);
  EXPECT_EQ(tape->value(copy).kind, ValueKind::kParameterCopy);
  EXPECT_EQ(2 * tape->value(copy).bytes, tape->value(filter).bytes);
  EXPECT_EQ(tape->value(tape->find_value("conv1.filter.gradient")).type.data_type, DataType::kF32);
  std::vector<std::string> readers;
  for (const OpId op : tape->readers(copy)) {
    readers.push_back(tape->op(op).name);
  }
  EXPECT_THAT(readers, ElementsAre("conv1.forward"));  // no op needs the gradient of the images
  ASSERT_EQ(tape->readers(filter).size(), 1U);
  const Op& update = tape->op(tape->readers(filter)[0]);
  EXPECT_EQ(update.name, "conv1.filter.update");
  EXPECT_EQ(update.writes.back(), copy);
}

// Regression: the conversion in front of a loss hid the layer that makes the logits, and training began with
// twice the loss.
TEST(PrecisionTape, ParametersBeginAsInFp32) {
  const auto catalog = make_classic_catalog();
  const auto wide = lower_to_tape(forked(), *catalog, {});
  const auto narrow =
      lower_to_tape(forked(), *catalog, {.precision = {.storage = DataType::kF16, .fp32_layers = {}}});
  ASSERT_EQ(wide->parameters().size(), narrow->parameters().size());
  for (std::size_t i = 0; i < wide->parameters().size(); ++i) {
    const ParameterRecipe& one = wide->parameters()[i].recipe;
    const ParameterRecipe& other = narrow->parameters()[i].recipe;
    EXPECT_EQ(wide->value(wide->parameters()[i].value).name,
              narrow->value(narrow->parameters()[i].value).name);
    EXPECT_EQ(one.initializer, other.initializer) << one.name;
    EXPECT_EQ(one.type, other.type) << one.name;
    EXPECT_EQ(one.fan_in, other.fan_in) << one.name;
  }
}

TEST(PrecisionTape, StatisticsBiasesAndMetricsStayFp32) {
  const TrainingOptions training{.precision = {.storage = DataType::kF16, .fp32_layers = {}}};
  const auto tape = lower_to_tape(forked(), *make_classic_catalog(), training);
  for (const Value& value : tape->values()) {
    const bool narrow = value.type.data_type == DataType::kF16;
    switch (value.kind) {
      case ValueKind::kParameterCopy:
        EXPECT_TRUE(narrow) << value.name;
        break;
      case ValueKind::kFeatureMap:
      case ValueKind::kGradientMap:
        EXPECT_EQ(narrow, !value.name.starts_with("fc.y.fp32")) << value.name;
        break;
      default:
        EXPECT_FALSE(narrow) << value.name;
    }
  }
  EXPECT_EQ(tape->find_value("conv1.bias.fp16"), kNone);
  EXPECT_EQ(tape->find_value("norm.scale.fp16"), kNone);
}

TEST(PrecisionTape, EvaluationSharesTheParametersOfItsPrecision) {
  const PrecisionOptions precision{.storage = DataType::kBf16, .fp32_layers = {"fc"}};
  const auto catalog = make_classic_catalog();
  const auto training = lower_to_tape(forked(), *catalog, {.precision = precision});
  const auto evaluation = lower_to_evaluation_tape(forked(), *catalog, precision);
  ASSERT_EQ(training->parameters().size(), evaluation->parameters().size());
  for (std::size_t i = 0; i < training->parameters().size(); ++i) {
    const TapeParameter& one = training->parameters()[i];
    const TapeParameter& other = evaluation->parameters()[i];
    EXPECT_EQ(one.recipe.copy, other.recipe.copy) << one.recipe.name;
    EXPECT_EQ(one.copy == kNone, other.copy == kNone) << one.recipe.name;
  }
}

}  // namespace
}  // namespace vdnn::precision_test
