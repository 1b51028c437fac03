#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

PoolingSpec max_pooling(std::int64_t extent, std::int64_t stride) {
  return square_pooling(PoolingMode::kMax, extent, stride, 0);
}

// LeNet-5 as in Caffe's examples (after LeCun et al. 1998): no ReLU after the convolutions.
void build_lenet(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = net.input();
  x = net.convolution("conv1", x, square_convolution(20, 5, 1, 0));
  x = net.pooling("pool1", x, max_pooling(2, 2));
  x = net.convolution("conv2", x, square_convolution(50, 5, 1, 0));
  x = net.pooling("pool2", x, max_pooling(2, 2));
  classify(net, x, {500}, classes);
}

// AlexNet in one column, as in "One weird trick for parallelizing convolutional neural networks" (Krizhevsky
// 2014), without dropout.
void build_alexnet(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = net.input();
  x = convolution_relu(net, "conv1", x, square_convolution(64, 11, 4, 2));
  x = net.pooling("pool1", x, max_pooling(3, 2));
  x = convolution_relu(net, "conv2", x, square_convolution(192, 5, 1, 2));
  x = net.pooling("pool2", x, max_pooling(3, 2));
  x = convolution_relu(net, "conv3", x, square_convolution(384, 3, 1, 1));
  x = convolution_relu(net, "conv4", x, square_convolution(256, 3, 1, 1));
  x = convolution_relu(net, "conv5", x, square_convolution(256, 3, 1, 1));
  x = net.pooling("pool5", x, max_pooling(3, 2));
  classify(net, x, {4096, 4096}, classes);
}

// OverFeat: the accurate model of Sermanet et al. 2014 (table 3), without dropout.
void build_overfeat(NetworkBuilder& net, std::int64_t classes) {
  Tensor x = net.input();
  x = convolution_relu(net, "conv1", x, square_convolution(96, 7, 2, 0));
  x = net.pooling("pool1", x, max_pooling(3, 3));
  x = convolution_relu(net, "conv2", x, square_convolution(256, 7, 1, 0));
  x = net.pooling("pool2", x, max_pooling(2, 2));
  x = convolution_relu(net, "conv3", x, square_convolution(512, 3, 1, 1));
  x = convolution_relu(net, "conv4", x, square_convolution(512, 3, 1, 1));
  x = convolution_relu(net, "conv5", x, square_convolution(1024, 3, 1, 1));
  x = convolution_relu(net, "conv6", x, square_convolution(1024, 3, 1, 1));
  x = net.pooling("pool6", x, max_pooling(3, 3));
  classify(net, x, {4096, 4096}, classes);
}

}  // namespace

std::vector<Model> classic_networks() {
  return {{.name = "lenet", .input = {1, 28, 28}, .classes = 10, .build = build_lenet},
          {.name = "alexnet", .input = {3, 224, 224}, .classes = 1000, .build = build_alexnet},
          {.name = "overfeat", .input = {3, 221, 221}, .classes = 1000, .build = build_overfeat}};
}

}  // namespace vdnn::zoo
