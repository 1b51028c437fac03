// build_network() accepts its list of layers in any order.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn::description_test {
namespace {

std::vector<LayerDescription> layers_backwards() {
  return {{.name = "loss", .spec = SoftmaxCrossEntropySpec{}, .inputs = {"fc"}},
          {.name = "fc", .spec = FullyConnectedSpec{.outputs = 4}, .inputs = {"sum"}},
          {.name = "sum", .spec = AddSpec{}, .inputs = {"left", "right"}, .output = true},
          {.name = "right", .spec = SigmoidSpec{}, .inputs = {"images"}},
          {.name = "left", .spec = ReluSpec{}, .inputs = {"images"}}};
}

TEST(BuildNetwork, PutsLayersInOrder) {
  const Network network = build_network("any order", {2, 3, 4, 4}, layers_backwards());
  std::vector<std::string> names;
  for (const Layer& layer : network.layers()) {
    names.push_back(layer.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"right", "left", "sum", "fc", "loss"}));
  EXPECT_EQ(network.type(network.layers()[3].output).dims, (Dims{2, 4}));
  ASSERT_EQ(network.outputs().size(), 1U);
  EXPECT_EQ(network.feature_map_name(network.outputs()[0]), "sum.y");
}

TEST(BuildNetwork, TakesTargetsByName) {
  const Network network =
      build_network("targets", {2, 3, 4, 4},
                    {{.name = "loss", .spec = MeanSquaredErrorSpec{}, .inputs = {"r", "wanted"}},
                     {.name = "r", .spec = ReluSpec{}, .inputs = {"images"}}},
                    {{.name = "wanted", .type = {.dims = {2, 3, 4, 4}}}});
  EXPECT_EQ(network.feature_map_name(network.targets()[0]), "wanted");
}

std::string error_of(const std::function<void(std::vector<LayerDescription>&)>& change) {
  std::vector<LayerDescription> layers = layers_backwards();
  change(layers);
  try {
    build_network("net", {2, 3, 4, 4}, std::move(layers));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

void expect_named(const std::string& error, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    EXPECT_NE(error.find(name), std::string::npos) << error;
  }
}

// Regression: errors gave numbers where a name was known: "input 0 (4294967295)", "no feature map 1".
TEST(BuildNetwork, NamesLossesThatAreReadOrPutOut) {
  expect_named(error_of([](auto& layers) {
                 layers.push_back({.name = "after", .spec = ReluSpec{}, .inputs = {"loss"}});
               }),
               {"network net", "layer after", "'loss'", "is a loss"});
  expect_named(error_of([](auto& layers) { layers[0].output = true; }), {"network net", "layer loss"});
}

std::string error_with_targets(const LayerDescription& layer) {
  try {
    build_network("net", {2, 3, 4, 4}, {layer}, {{.name = "wanted", .type = {.dims = {2, 3, 4, 4}}}});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BuildNetwork, NamesTargetsThatAreTakenForAFeatureMap) {
  expect_named(error_with_targets({.name = "loss", .spec = MeanSquaredErrorSpec{}, .inputs = {"wanted"}}),
               {"layer loss", "'wanted'", "no feature map"});
  expect_named(error_with_targets({.name = "r", .spec = ReluSpec{}, .inputs = {"wanted"}}),
               {"layer r", "'wanted'", "no feature map"});
  expect_named(
      error_with_targets({.name = "loss", .spec = MeanSquaredErrorSpec{}, .inputs = {"images", "images"}}),
      {"layer loss", "'images'", "no targets"});
}

TEST(BuildNetwork, NamesACycle) {
  expect_named(error_of([](auto& layers) { layers[4].inputs = {"fc"}; }),
               {"cycle", "sum reads left, which reads fc, which reads sum"});
  expect_named(error_of([](auto& layers) { layers[4].inputs = {"left"}; }), {"cycle: left reads left"});
}

TEST(BuildNetwork, NamesWhatIsMissingOrTwice) {
  expect_named(error_of([](auto& layers) { layers[4].inputs = {"nowhere"}; }), {"left", "'nowhere'"});
  expect_named(error_of([](auto& layers) { layers[4].name = "right"; }), {"'right' repeats"});
  expect_named(error_of([](auto& layers) { layers[4].name = "images"; }), {"'images' is taken"});
}

TEST(BuildNetwork, NamesALayerThatNobodyReads) {
  expect_named(error_of([](auto& layers) {
                 layers.push_back({.name = "aside", .spec = ReluSpec{}, .inputs = {"images"}});
               }),
               {"aside.y", "2x3x4x4"});
}

TEST(BuildNetwork, NamesBothLayersAndShapesThatDoNotFit) {
  expect_named(error_of([](auto& layers) {
                 layers[3].spec = PoolingSpec{
                     .mode = PoolingMode::kMax, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
               }),
               {"layer sum", "'left.y' (2x3x4x4)", "'right.y' (2x3x2x2)"});
}

}  // namespace
}  // namespace vdnn::description_test
