#include "vdnn/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "vdnn/error.h"

namespace vdnn::zoo_test {
namespace {

ModelOptions options(const std::string& model, std::int64_t batch = 64) {
  return {.model = model, .input = {}, .classes = 0, .batch = batch};
}

// The number of trained parameters, counted from the layers alone, without a catalog.
std::int64_t parameters_of(const Network& network, const Layer& layer) {
  const Dims& x = network.type(layer.inputs[0]).dims;
  const auto filters = [&](std::int64_t count, std::int64_t each, bool bias) {
    return count * each + (bias ? count : 0);
  };
  const auto window = [](const Dims& dims) { return static_cast<std::int64_t>(element_count(dims)); };
  if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
    return filters(convolution->filters, x[1] / convolution->groups * window(convolution->kernel),
                   convolution->bias);
  }
  if (const auto* transposed = std::get_if<TransposedConvolutionSpec>(&layer.spec)) {
    return filters(transposed->filters, x[1] * window(transposed->kernel), transposed->bias);
  }
  if (const auto* connected = std::get_if<FullyConnectedSpec>(&layer.spec)) {
    return filters(connected->outputs, window({x.begin() + 1, x.end()}), connected->bias);
  }
  const bool normalisation = std::holds_alternative<BatchNormalizationSpec>(layer.spec) ||
                             std::holds_alternative<GroupNormalizationSpec>(layer.spec);
  return normalisation ? 2 * x[1] : 0;
}

std::int64_t parameters_of(const Network& network) {
  std::int64_t sum = 0;
  for (const Layer& layer : network.layers()) {
    sum += parameters_of(network, layer);
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

const Layer& layer_of(const Network& network, const std::string& name) {
  const auto found = std::ranges::find(network.layers(), name, &Layer::name);
  if (found == network.layers().end()) {
    throw InvalidArgument(network.name() + " has no layer " + name);
  }
  return *found;
}

// The shape of a layer's output without the batch dimension.
Dims made_by(const Network& network, const std::string& layer) {
  Dims dims = network.type(layer_of(network, layer).output).dims;
  dims.erase(dims.begin());
  return dims;
}

template <class Spec>
std::ptrdiff_t count(const Network& network) {
  return std::ranges::count_if(network.layers(),
                               [](const Layer& layer) { return std::holds_alternative<Spec>(layer.spec); });
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
            "fc2:2x10 loss:3");
}

TEST(Zoo, FashionVgg) {
  const Network network = make_model(options("fashion-vgg", 3));
  EXPECT_EQ(layers_of(network),
            "conv1_1:3x32x28x28 relu1_1:3x32x28x28 conv1_2:3x32x28x28 relu1_2:3x32x28x28 pool1:3x32x14x14 "
            "conv2_1:3x64x14x14 relu2_1:3x64x14x14 conv2_2:3x64x14x14 relu2_2:3x64x14x14 pool2:3x64x7x7 "
            "conv3_1:3x128x7x7 relu3_1:3x128x7x7 conv3_2:3x128x7x7 relu3_2:3x128x7x7 pool3:3x128x3x3 "
            "fc1:3x256 relu_fc1:3x256 fc2:3x10 loss:3");
}

TEST(Zoo, Alexnet) {
  EXPECT_EQ(layers_of(make_model(options("alexnet", 1))),
            "conv1:1x64x55x55 relu1:1x64x55x55 pool1:1x64x27x27 conv2:1x192x27x27 relu2:1x192x27x27 "
            "pool2:1x192x13x13 conv3:1x384x13x13 relu3:1x384x13x13 conv4:1x256x13x13 relu4:1x256x13x13 "
            "conv5:1x256x13x13 relu5:1x256x13x13 pool5:1x256x6x6 fc1:1x4096 relu_fc1:1x4096 fc2:1x4096 "
            "relu_fc2:1x4096 fc3:1x1000 loss:3");
}

TEST(Zoo, Overfeat) {
  EXPECT_EQ(layers_of(make_model(options("overfeat", 1))),
            "conv1:1x96x108x108 relu1:1x96x108x108 pool1:1x96x36x36 conv2:1x256x30x30 relu2:1x256x30x30 "
            "pool2:1x256x15x15 conv3:1x512x15x15 relu3:1x512x15x15 conv4:1x512x15x15 relu4:1x512x15x15 "
            "conv5:1x1024x15x15 relu5:1x1024x15x15 conv6:1x1024x15x15 relu6:1x1024x15x15 pool6:1x1024x5x5 "
            "fc1:1x4096 relu_fc1:1x4096 fc2:1x4096 relu_fc2:1x4096 fc3:1x1000 loss:3");
}

TEST(Zoo, Vgg) {
  const Network network = make_model(options("vgg19", 1));
  EXPECT_EQ(made_by(network, "conv1_2"), (Dims{64, 224, 224}));
  EXPECT_EQ(made_by(network, "conv4_4"), (Dims{512, 28, 28}));
  EXPECT_EQ(made_by(network, "pool5"), (Dims{512, 7, 7}));
  // The vDNN paper counts the convolutions.
  EXPECT_EQ(count<ConvolutionSpec>(network), 16);
  EXPECT_EQ(count<ConvolutionSpec>(make_model(options("vgg16"))), 13);
  for (const int number : {116, 216, 316, 416}) {
    EXPECT_EQ(count<ConvolutionSpec>(make_model(options("vgg" + std::to_string(number)))), number);
  }
}

TEST(Zoo, Googlenet) {
  const Network network = make_model(options("googlenet", 1));
  // The output sizes of table 1.
  EXPECT_EQ(made_by(network, "pool1"), (Dims{64, 56, 56}));
  EXPECT_EQ(made_by(network, "pool2"), (Dims{192, 28, 28}));
  EXPECT_EQ(made_by(network, "inception_3a_output"), (Dims{256, 28, 28}));
  EXPECT_EQ(made_by(network, "inception_3b_output"), (Dims{480, 28, 28}));
  EXPECT_EQ(made_by(network, "inception_4e_output"), (Dims{832, 14, 14}));
  EXPECT_EQ(made_by(network, "inception_5b_output"), (Dims{1024, 7, 7}));
  EXPECT_EQ(made_by(network, "pool"), (Dims{1024, 1, 1}));
  EXPECT_EQ(count<ConvolutionSpec>(network), 57);
  // The input of a block is one feature map with four readers.
  const std::uint32_t shared = layer_of(network, "inception_3a_relu").output;
  EXPECT_EQ(std::ranges::count_if(network.layers(),
                                  [&](const Layer& layer) {
                                    return std::ranges::find(layer.inputs, shared) != layer.inputs.end();
                                  }),
            4);
}

TEST(Zoo, Resnet) {
  const Network network = make_model(options("resnet50", 1));
  EXPECT_EQ(made_by(network, "pool1"), (Dims{64, 56, 56}));
  EXPECT_EQ(made_by(network, "block1_3_relu"), (Dims{256, 56, 56}));
  // v1.5: the 3x3 convolution has the stride.
  EXPECT_EQ(made_by(network, "block2_1_conv1"), (Dims{128, 56, 56}));
  EXPECT_EQ(made_by(network, "block2_1_conv2"), (Dims{128, 28, 28}));
  EXPECT_EQ(made_by(network, "block4_3_relu"), (Dims{2048, 7, 7}));
  // 50 layers have weights: 49 convolutions, without the 4 of the shortcuts, and the fully connected layer.
  EXPECT_EQ(count<ConvolutionSpec>(network), 49 + 4);
  EXPECT_EQ(count<ConvolutionSpec>(make_model(options("resnet18"))), 17 + 3);
  EXPECT_EQ(count<ConvolutionSpec>(make_model(options("resnet152"))), 151 + 4);
}

TEST(Zoo, CifarResnet) {
  const Network network = make_model(options("resnet20", 1));
  EXPECT_EQ(made_by(network, "block1_3_relu"), (Dims{16, 32, 32}));
  EXPECT_EQ(made_by(network, "block2_1_relu"), (Dims{32, 16, 16}));
  EXPECT_EQ(made_by(network, "block3_3_relu"), (Dims{64, 8, 8}));
  EXPECT_EQ(count<ConvolutionSpec>(network), 19 + 2);
  EXPECT_EQ(count<ConvolutionSpec>(make_model(options("resnet110"))), 109 + 2);
}

TEST(Zoo, Mobilenet) {
  const Network network = make_model(options("mobilenet", 1));
  EXPECT_EQ(made_by(network, "conv1"), (Dims{32, 112, 112}));
  EXPECT_EQ(made_by(network, "block2_depthwise"), (Dims{64, 56, 56}));
  EXPECT_EQ(made_by(network, "block12_pointwise_relu"), (Dims{1024, 7, 7}));
  EXPECT_EQ(made_by(network, "block13_pointwise_relu"), (Dims{1024, 7, 7}));
  EXPECT_EQ(std::get<ConvolutionSpec>(layer_of(network, "block2_depthwise").spec).groups, 64);
}

TEST(Zoo, Densenet) {
  const Network network = make_model(options("densenet121", 1));
  EXPECT_EQ(made_by(network, "block1_6_concat"), (Dims{256, 56, 56}));
  EXPECT_EQ(made_by(network, "transition1_pool"), (Dims{128, 28, 28}));
  EXPECT_EQ(made_by(network, "block3_24_concat"), (Dims{1024, 14, 14}));
  EXPECT_EQ(made_by(network, "block4_16_concat"), (Dims{1024, 7, 7}));
  EXPECT_EQ(count<ConvolutionSpec>(network), 120);
}

TEST(Zoo, Unet) {
  const Network network = make_model(options("unet", 1));
  EXPECT_EQ(made_by(network, "enc1_relu2"), (Dims{16, 64, 64, 64}));
  EXPECT_EQ(made_by(network, "enc3_relu2"), (Dims{64, 16, 16, 16}));
  EXPECT_EQ(made_by(network, "dec2_concat"), (Dims{64, 32, 32, 32}));
  EXPECT_EQ(made_by(network, "logits"), (Dims{2, 64, 64, 64}));
  EXPECT_EQ(network.type(network.targets()[0]).dims, (Dims{1, 64, 64, 64})) << "one class per voxel";

  ModelOptions flat = options("unet", 1);
  flat.input = {3, 32, 48};
  flat.classes = 4;
  EXPECT_EQ(made_by(make_model(flat), "logits"), (Dims{4, 32, 48}));
}

// Published numbers of parameters, without running statistics. If no source is named, it is torchvision's
// documentation.
const std::map<std::string, std::int64_t>& published_parameters() {
  // One more convolution in each of VGG's five groups adds 9 (64^2 + 128^2 + 256^2 + 2 x 512^2) weights and
  // 64 + 128 + 256 + 2 x 512 biases.
  constexpr std::int64_t kVgg19 = 143'667'240;
  constexpr std::int64_t kLayerMore = 5'494'208;
  // The 1x1 convolutions of the two shortcuts, with normalisation.
  constexpr std::int64_t kProjections = 2'752;
  static const std::map<std::string, std::int64_t> numbers{
      {"lenet", 431'080},  // Caffe's example
      // Groups: 32 x 1 x 9 + 32, 32 x 32 x 9 + 32; 64 x 32 x 9 + 64, 64 x 64 x 9 + 64; 128 x 64 x 9 + 128,
      // 128 x 128 x 9 + 128; then 256 x (128 x 3 x 3) + 256 and 10 x 256 + 10.
      {"fashion-vgg", 320 + 9'248 + 18'496 + 36'928 + 73'856 + 147'584 + 295'168 + 2'570},
      {"alexnet", 61'100'840},
      {"overfeat", 144'656'488},  // 144 million: Sermanet et al. 2014, table 4
      {"vgg16", 138'357'544},
      {"vgg19", kVgg19},
      {"vgg116", kVgg19 + 20 * kLayerMore},
      {"vgg216", kVgg19 + 40 * kLayerMore},
      {"vgg316", kVgg19 + 60 * kLayerMore},
      {"vgg416", kVgg19 + 80 * kLayerMore},
      {"googlenet", 6'998'552},  // Caffe's bvlc_googlenet without the auxiliary classifiers
      {"resnet18", 11'689'512},
      {"resnet50", 25'557'032},
      {"resnet152", 60'192'808},
      {"resnet20", 269'722 + kProjections},     // 0.27 million: He et al. 2016, table 6 (option A)
      {"resnet56", 853'018 + kProjections},     // 0.85 million
      {"resnet110", 1'727'962 + kProjections},  // 1.7 million
      {"mobilenet", 4'231'976},                 // 4.2 million: Howard et al. 2017, table 8
      {"densenet121", 7'978'856},
      // No publication gives this number. Its terms are the levels down, the levels up with their transposed
      // convolutions, and the logits. A convolution with normalisation has 27 C K + 3 K parameters.
      {"unet", 7'440 + 41'664 + 166'272 + 99'552 + 24'944 + 34}};
  return numbers;
}

TEST(Zoo, EveryModelHasAsManyParametersAsPublished) {
  const auto& published = published_parameters();
  for (const std::string& name : model_names()) {
    ASSERT_TRUE(published.contains(name)) << name << " has no published number";
    EXPECT_EQ(parameters_of(make_model(options(name, 2))), published.at(name)) << name;
  }
  EXPECT_EQ(model_names().size(), published.size());
}

TEST(Zoo, ListsItsNamesAndMakesEachOfThem) {
  const std::vector<std::string> names = model_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const std::string& name : names) {
    const Network network = make_model(options(name));
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(network.batch(), 64);
    EXPECT_GT(network.classes(), 1);
  }
}

TEST(Zoo, TakesOtherInputsAndClasses) {
  for (const std::string& name : model_names()) {
    ModelOptions wanted = options(name, 2);
    wanted.input = {5, 96, 112};
    wanted.classes = 7;
    const Network network = make_model(wanted);
    EXPECT_EQ(network.type(network.input()).dims, (Dims{2, 5, 96, 112})) << name;
    EXPECT_EQ(network.classes(), 7) << name;
  }
}

// The smallest inputs with which every layer still has a nonempty output.
TEST(Zoo, TakesSmallInputs) {
  const auto accepts = [](const std::string& model, const Dims& input) {
    ModelOptions small = options(model, 2);
    small.input = input;
    return error_of(small);
  };
  EXPECT_EQ(accepts("alexnet", {3, 63, 63}), "accepted");
  EXPECT_NE(accepts("alexnet", {3, 62, 63}).find("layer pool5"), std::string::npos);
  EXPECT_EQ(accepts("overfeat", {3, 77, 77}), "accepted");
  EXPECT_NE(accepts("overfeat", {3, 77, 76}).find("layer pool6"), std::string::npos);
  for (const char* vgg : {"vgg16", "vgg19", "vgg416"}) {
    EXPECT_EQ(accepts(vgg, {3, 32, 32}), "accepted") << vgg;
    EXPECT_NE(accepts(vgg, {3, 31, 32}).find("layer pool5"), std::string::npos) << vgg;
  }
  for (const char* model : {"googlenet", "resnet18", "resnet50", "resnet152", "mobilenet", "densenet121"}) {
    EXPECT_EQ(accepts(model, {3, 32, 32}), "accepted") << model;
  }
  EXPECT_EQ(accepts("densenet121", {3, 29, 29}), "accepted");
  EXPECT_NE(accepts("densenet121", {3, 28, 29}).find("layer transition3_pool"), std::string::npos);
  EXPECT_EQ(accepts("lenet", {1, 16, 16}), "accepted");
  EXPECT_EQ(accepts("fashion-vgg", {1, 8, 8}), "accepted");
  EXPECT_NE(accepts("fashion-vgg", {1, 8, 7}).find("layer pool3"), std::string::npos);
  for (const char* model : {"resnet20", "resnet56", "resnet110"}) {
    EXPECT_EQ(accepts(model, {1, 28, 28}), "accepted") << model;
  }
  EXPECT_EQ(accepts("unet", {1, 16, 16, 16}), "accepted");
  EXPECT_EQ(accepts("unet", {1, 4, 4, 4}), "accepted");
  // Two levels down and up again: a size that is not a multiple of 4 does not match its skip connection.
  EXPECT_NE(accepts("unet", {1, 16, 16, 18}).find("layer dec2_concat"), std::string::npos);
  EXPECT_NE(accepts("unet", {1, 16, 15, 16}).find("layer dec1_concat"), std::string::npos);
}

TEST(Zoo, AnUnknownModelListsTheNames) {
  const std::string error = error_of(options("resnet-9000"));
  EXPECT_NE(error.find("resnet-9000"), std::string::npos) << error;
  for (const std::string& name : model_names()) {
    EXPECT_NE(error.find(name), std::string::npos) << error;
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
}  // namespace vdnn::zoo_test
