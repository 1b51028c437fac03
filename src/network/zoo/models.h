#pragma once
// The models of the zoo, with one list per source file, and building blocks that they share.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vdnn/network.h"

namespace vdnn::zoo {

struct Model {
  std::string name;
  Dims input;  // C, then space, as published
  std::int64_t classes = 0;
  std::function<void(NetworkBuilder& net, std::int64_t classes)> build;
};

std::vector<Model> classic_networks();  // lenet, alexnet, overfeat
std::vector<Model> vgg_networks();
std::vector<Model> googlenet();
std::vector<Model> resnets();
std::vector<Model> mobilenet();
std::vector<Model> densenet();
std::vector<Model> unet();

// Windows of the same extent in every dimension. `rank`: the number of dimensions of space.
ConvolutionSpec square_convolution(std::int64_t filters, std::int64_t extent, std::int64_t stride,
                                   std::int64_t padding, std::size_t rank = 2);
PoolingSpec square_pooling(PoolingMode mode, std::int64_t extent, std::int64_t stride, std::int64_t padding);

// A convolution and its ReLU. They are named like "conv1_2" and "relu1_2", or like "inception_3a_1x1" and
// "inception_3a_1x1_relu".
Tensor convolution_relu(NetworkBuilder& net, const std::string& name, Tensor x, const ConvolutionSpec& spec);

// A convolution without a bias, then batch normalisation, whose shift replaces the bias. Layers NAME and
// NAME_bn.
Tensor convolution_norm(NetworkBuilder& net, const std::string& name, Tensor x, ConvolutionSpec spec);

// The end of the classic networks: hidden layers with ReLU, one output per class, the loss. Layers fc1,
// relu_fc1, fc2, ..., loss.
void classify(NetworkBuilder& net, Tensor x, const std::vector<std::int64_t>& hidden, std::int64_t classes);

// The end of the later networks: the average of each channel, one output per class, the loss. Layers pool,
// fc, loss.
void classify_average(NetworkBuilder& net, Tensor x, std::int64_t classes);

}  // namespace vdnn::zoo
