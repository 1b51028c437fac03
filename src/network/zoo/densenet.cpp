// DenseNet-BC (Huang et al. 2017, table 1). Normalisation and ReLU come before the convolutions. Each layer's
// new channels are appended to all earlier channels by a concatenation of two feature maps, as in the
// authors' code.

#include <array>

#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

constexpr std::int64_t kGrowth = 32;

Tensor norm_relu_convolution(NetworkBuilder& net, const std::string& name, const std::string& number,
                             Tensor x, ConvolutionSpec spec) {
  x = net.batch_normalization(name + "_bn" + number, x);
  x = net.relu(name + "_relu" + number, x);
  spec.bias = false;
  return net.convolution(name + "_conv" + number, x, std::move(spec));
}

Tensor dense_layer(NetworkBuilder& net, const std::string& name, Tensor x) {
  Tensor y = norm_relu_convolution(net, name, "1", x, square_convolution(4 * kGrowth, 1, 1, 0));
  y = norm_relu_convolution(net, name, "2", y, square_convolution(kGrowth, 3, 1, 1));
  return net.concatenation(name + "_concat", {x, y});
}

// Halves the channels and the size.
Tensor transition(NetworkBuilder& net, const std::string& name, Tensor x) {
  x = norm_relu_convolution(net, name, "", x, square_convolution(net.type(x).dims[1] / 2, 1, 1, 0));
  return net.pooling(name + "_pool", x, square_pooling(PoolingMode::kAverage, 2, 2, 0));
}

void build_densenet121(NetworkBuilder& net, std::int64_t classes) {
  constexpr std::array<int, 4> kLayers{6, 12, 24, 16};
  Tensor x = convolution_norm(net, "conv1", net.input(), square_convolution(2 * kGrowth, 7, 2, 3));
  x = net.relu("relu1", x);
  x = net.pooling("pool1", x, square_pooling(PoolingMode::kMax, 3, 2, 1));
  for (std::size_t block = 0; block < kLayers.size(); ++block) {
    const std::string number = std::to_string(block + 1);
    if (block > 0) {
      x = transition(net, "transition" + std::to_string(block), x);
    }
    for (int i = 1; i <= kLayers.at(block); ++i) {
      x = dense_layer(net, "block" + number + "_" + std::to_string(i), x);
    }
  }
  x = net.relu("relu", net.batch_normalization("bn", x));
  classify_average(net, x, classes);
}

}  // namespace

std::vector<Model> densenet() {
  return {{.name = "densenet121", .input = {3, 224, 224}, .classes = 1000, .build = build_densenet121}};
}

}  // namespace vdnn::zoo
