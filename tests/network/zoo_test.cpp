#include "vdnn/zoo.h"

#include <gtest/gtest.h>

#include <string>

#include "fakes/fake_catalog.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

ModelOptions options(const std::string& model, std::int64_t batch = 64) {
  return {.model = model, .input = {}, .classes = 0, .batch = batch};
}

std::uint64_t parameters_of(const Network& network) {
  const auto tape = lower_to_evaluation_tape(network, fakes::FakeCatalog());
  std::uint64_t sum = 0;
  for (const TapeParameter& parameter : tape->parameters()) {
    sum += parameter.recipe.type.elements();
  }
  return sum;
}

std::string layers_of(const Network& network) {
  std::string text;
  for (const Layer& layer : network.layers()) {
    text += (text.empty() ? "" : " ") + layer.name + ":" + to_string(network.type(layer.output).dims);
  }
  return text;
}

std::string error_of(const ModelOptions& wanted) {
  try {
    make_model(wanted);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Zoo, Lenet) {
  const Network network = make_model(options("lenet", 2));
  EXPECT_EQ(layers_of(network),
            "conv1:2x20x24x24 pool1:2x20x12x12 conv2:2x50x8x8 pool2:2x50x4x4 fc1:2x500 relu_fc1:2x500 "
            "fc2:2x10 loss:2");
  // Filters and biases: 20 x 1 x 5 x 5 + 20, 50 x 20 x 5 x 5 + 50, 500 x (50 x 4 x 4) + 500, 10 x 500 + 10.
  EXPECT_EQ(parameters_of(network), 520u + 25'050u + 400'500u + 5'010u);
}

TEST(Zoo, FashionVgg) {
  const Network network = make_model(options("fashion-vgg", 3));
  EXPECT_EQ(layers_of(network),
            "conv1_1:3x32x28x28 relu1_1:3x32x28x28 conv1_2:3x32x28x28 relu1_2:3x32x28x28 pool1:3x32x14x14 "
            "conv2_1:3x64x14x14 relu2_1:3x64x14x14 conv2_2:3x64x14x14 relu2_2:3x64x14x14 pool2:3x64x7x7 "
            "conv3_1:3x128x7x7 relu3_1:3x128x7x7 conv3_2:3x128x7x7 relu3_2:3x128x7x7 pool3:3x128x3x3 "
            "fc1:3x256 relu_fc1:3x256 fc2:3x10 loss:2");
  // Groups: 32 x 1 x 9 + 32, 32 x 32 x 9 + 32; 64 x 32 x 9 + 64, 64 x 64 x 9 + 64; 128 x 64 x 9 + 128,
  // 128 x 128 x 9 + 128; then 256 x (128 x 3 x 3) + 256 and 10 x 256 + 10.
  EXPECT_EQ(parameters_of(network),
            320u + 9'248u + 18'496u + 36'928u + 73'856u + 147'584u + 295'168u + 2'570u);
}

TEST(Zoo, ListsItsNamesAndMakesEachOfThem) {
  ASSERT_EQ(model_names().size(), 2u);
  for (const std::string& name : model_names()) {
    const Network network = make_model(options(name));
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(network.batch(), 64);
    EXPECT_EQ(network.classes(), 10);
  }
}

TEST(Zoo, TakesOtherInputsAndClasses) {
  ModelOptions wanted = options("fashion-vgg", 5);
  wanted.input = {3, 32, 40};
  wanted.classes = 100;
  const Network network = make_model(wanted);
  EXPECT_EQ(network.type(network.input()).dims, (Dims{5, 3, 32, 40}));
  EXPECT_EQ(network.classes(), 100);
}

TEST(Zoo, AnUnknownModelListsTheNames) {
  const std::string error = error_of(options("resnet-9000"));
  for (const char* part : {"resnet-9000", "lenet", "fashion-vgg"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(Zoo, RejectsBatchesThatCannotBe) {
  EXPECT_NE(error_of(options("lenet", 0)).find("batch 0"), std::string::npos);
  EXPECT_NE(error_of(options("lenet", -1)).find("batch -1"), std::string::npos);
  EXPECT_NE(error_of(options("lenet", std::int64_t{1} << 61)).find("overflow"), std::string::npos);
  // The images fit into 64 bits, the first layer's output does not.
  EXPECT_NE(error_of(options("lenet", std::int64_t{1} << 51)).find("layer conv1"), std::string::npos);
}

TEST(Zoo, RejectsInputsThatCannotBe) {
  ModelOptions small = options("lenet", 2);
  small.input = {1, 8, 8};  // 4x4 after conv1, 2x2 after pool1: less than conv2's kernel
  const std::string error = error_of(small);
  for (const char* part : {"conv2", "2x20x2x2", "5x5"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
  small.input = {28};
  EXPECT_NE(error_of(small).find("conv1"), std::string::npos);
  small.input = {1, 28, 28, 28};
  EXPECT_NE(error_of(small).find("conv1"), std::string::npos);
  small.input = {1, -28, 28};
  EXPECT_NE(error_of(small).find("2x1x-28x28"), std::string::npos);
  small.input = {};
  small.classes = -1;
  EXPECT_NE(error_of(small).find("-1 classes"), std::string::npos);
}

}  // namespace
}  // namespace vdnn
