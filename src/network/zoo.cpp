#include "vdnn/zoo.h"

#include <array>
#include <string_view>

#include "vdnn/error.h"

namespace vdnn {

namespace {

ConvolutionSpec square_convolution(std::int64_t filters, std::int64_t extent, std::int64_t padding) {
  return {.filters = filters, .kernel = {extent, extent}, .stride = {1, 1}, .padding = {padding, padding}};
}

PoolingSpec halving() {
  return {.mode = PoolingMode::kMax, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
}

// The end that both models share: a hidden layer, then one output a class.
void classify(NetworkBuilder& net, Tensor x, std::int64_t hidden, std::int64_t classes) {
  x = net.fully_connected("fc1", x, {.outputs = hidden});
  x = net.relu("relu_fc1", x);
  x = net.fully_connected("fc2", x, {.outputs = classes});
  net.softmax_cross_entropy("loss", x);
}

// LeNet-5 as Caffe's examples have it (after LeCun et al. 1998).
void build_lenet(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = net.input();
  x = net.convolution("conv1", x, square_convolution(20, 5, 0));
  x = net.pooling("pool1", x, halving());
  x = net.convolution("conv2", x, square_convolution(50, 5, 0));
  x = net.pooling("pool2", x, halving());
  classify(net, x, 500, classes);
}

// Three groups in the manner of VGG (Simonyan and Zisserman 2015), small enough for 28 x 28 images.
void build_fashion_vgg(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = net.input();
  std::int64_t filters = 32;
  for (const std::string group : {"1", "2", "3"}) {
    for (const std::string position : {"_1", "_2"}) {
      const std::string number = group + position;
      x = net.convolution("conv" + number, x, square_convolution(filters, 3, 1));
      x = net.relu("relu" + number, x);
    }
    x = net.pooling("pool" + group, x, halving());
    filters *= 2;
  }
  classify(net, x, 256, classes);
}

struct Model {
  std::string_view name;
  std::array<std::int64_t, 3> input;  // C, H, W
  std::int64_t classes;
  void (*build)(NetworkBuilder& net, std::int64_t classes);
};

constexpr std::array<Model, 2> kModels{
    {{"lenet", {1, 28, 28}, 10, build_lenet}, {"fashion-vgg", {1, 28, 28}, 10, build_fashion_vgg}}};

const Model& find_model(const std::string& name) {
  std::string known;
  for (const Model& model : kModels) {
    if (model.name == name) {
      return model;
    }
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  throw InvalidArgument("unknown model '" + name + "'; known: " + known);
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  names.reserve(kModels.size());
  for (const Model& model : kModels) {
    names.emplace_back(model.name);
  }
  return names;
}

Network make_model(const ModelOptions& options) {
  const Model& model = find_model(options.model);
  if (options.batch <= 0) {
    throw InvalidArgument("model " + options.model + ": batch " + std::to_string(options.batch) +
                          " is not positive");
  }
  if (options.classes < 0) {
    throw InvalidArgument("model " + options.model + ": " + std::to_string(options.classes) + " classes");
  }
  Dims input{options.batch};
  if (options.input.empty()) {
    input.insert(input.end(), model.input.begin(), model.input.end());
  } else {
    input.insert(input.end(), options.input.begin(), options.input.end());
  }
  NetworkBuilder net(options.model, std::move(input));
  model.build(net, options.classes == 0 ? model.classes : options.classes);
  return std::move(net).build();
}

}  // namespace vdnn
