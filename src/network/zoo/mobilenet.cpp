// MobileNet (Howard et al. 2017, table 1): depth-wise convolutions, each followed by a 1x1 convolution. The
// last depth-wise layer has stride 1; the table's stride of 2 contradicts the sizes in the same table.

#include <array>

#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

struct Separable {
  std::int64_t filters = 0;
  std::int64_t stride = 1;
};

constexpr std::array<Separable, 13> kBlocks{{{64, 1},
                                             {128, 2},
                                             {128, 1},
                                             {256, 2},
                                             {256, 1},
                                             {512, 2},
                                             {512, 1},
                                             {512, 1},
                                             {512, 1},
                                             {512, 1},
                                             {512, 1},
                                             {1024, 2},
                                             {1024, 1}}};

Tensor separable(NetworkBuilder& net, const std::string& name, Tensor x, const Separable& block) {
  const std::int64_t channels = net.type(x).dims[1];
  ConvolutionSpec depthwise = square_convolution(channels, 3, block.stride, 1);
  depthwise.groups = channels;
  x = net.relu(name + "_depthwise_relu", convolution_norm(net, name + "_depthwise", x, depthwise));
  return net.relu(name + "_pointwise_relu",
                  convolution_norm(net, name + "_pointwise", x, square_convolution(block.filters, 1, 1, 0)));
}

void build_mobilenet(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = convolution_norm(net, "conv1", net.input(), square_convolution(32, 3, 2, 1));
  x = net.relu("relu1", x);
  std::size_t number = 1;
  for (const Separable& block : kBlocks) {
    x = separable(net, "block" + std::to_string(number++), x, block);
  }
  classify_average(net, x, classes);
}

}  // namespace

std::vector<Model> mobilenet() {
  return {{.name = "mobilenet", .input = {3, 224, 224}, .classes = 1000, .build = build_mobilenet}};
}

}  // namespace vdnn::zoo
