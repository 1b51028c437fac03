// GoogLeNet (Szegedy et al. 2015, table 1) as in the vDNN paper: without local response normalisation,
// auxiliary classifiers and dropout.

#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

// The filters of each convolution. "reduce" is the 1x1 convolution that precedes a larger one.
struct Inception {
  std::int64_t direct = 0;
  std::int64_t reduce_3x3 = 0;
  std::int64_t filters_3x3 = 0;
  std::int64_t reduce_5x5 = 0;
  std::int64_t filters_5x5 = 0;
  std::int64_t projection = 0;
};

Tensor halve(NetworkBuilder& net, const std::string& name, Tensor x) {
  // With a padding of 1, an extent of 112 becomes 56, as in frameworks that round up.
  return net.pooling(name, x, square_pooling(PoolingMode::kMax, 3, 2, 1));
}

// Four branches read x. One ReLU after the concatenation replaces a ReLU at the end of each branch. The
// result has the same bits, and the branches' outputs need not be kept in addition to the concatenation.
Tensor inception(NetworkBuilder& net, const std::string& block, Tensor x, const Inception& filters) {
  const std::string name = "inception_" + block + "_";
  const Tensor direct = net.convolution(name + "1x1", x, square_convolution(filters.direct, 1, 1, 0));
  Tensor middle =
      convolution_relu(net, name + "3x3_reduce", x, square_convolution(filters.reduce_3x3, 1, 1, 0));
  middle = net.convolution(name + "3x3", middle, square_convolution(filters.filters_3x3, 3, 1, 1));
  Tensor wide =
      convolution_relu(net, name + "5x5_reduce", x, square_convolution(filters.reduce_5x5, 1, 1, 0));
  wide = net.convolution(name + "5x5", wide, square_convolution(filters.filters_5x5, 5, 1, 2));
  Tensor pooled = net.pooling(name + "pool", x, square_pooling(PoolingMode::kMax, 3, 1, 1));
  pooled = net.convolution(name + "pool_proj", pooled, square_convolution(filters.projection, 1, 1, 0));
  return net.relu(name + "relu", net.concatenation(name + "output", {direct, middle, wide, pooled}));
}

void build_googlenet(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = net.input();
  x = convolution_relu(net, "conv1", x, square_convolution(64, 7, 2, 3));
  x = halve(net, "pool1", x);
  x = convolution_relu(net, "conv2_reduce", x, square_convolution(64, 1, 1, 0));
  x = convolution_relu(net, "conv2", x, square_convolution(192, 3, 1, 1));
  x = halve(net, "pool2", x);
  x = inception(net, "3a", x, {64, 96, 128, 16, 32, 32});
  x = inception(net, "3b", x, {128, 128, 192, 32, 96, 64});
  x = halve(net, "pool3", x);
  x = inception(net, "4a", x, {192, 96, 208, 16, 48, 64});
  x = inception(net, "4b", x, {160, 112, 224, 24, 64, 64});
  x = inception(net, "4c", x, {128, 128, 256, 24, 64, 64});
  x = inception(net, "4d", x, {112, 144, 288, 32, 64, 64});
  x = inception(net, "4e", x, {256, 160, 320, 32, 128, 128});
  x = halve(net, "pool4", x);
  x = inception(net, "5a", x, {256, 160, 320, 32, 128, 128});
  x = inception(net, "5b", x, {384, 192, 384, 48, 128, 128});
  classify_average(net, x, classes);
}

}  // namespace

std::vector<Model> googlenet() {
  return {{.name = "googlenet", .input = {3, 224, 224}, .classes = 1000, .build = build_googlenet}};
}

}  // namespace vdnn::zoo
