#pragma once
// The models of the zoo, one list per source file, and the building blocks that several models share.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vdnn/network.h"

namespace vdnn::zoo {

struct Model {
  std::string name;
  Dims input;  // the published channels and extents, without the batch
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

// The window has the same extent in every spatial dimension. `rank`: the number of spatial dimensions.
ConvolutionSpec square_convolution(std::int64_t filters, std::int64_t extent, std::int64_t stride,
                                   std::int64_t padding, std::size_t rank = 2);
// The window has the same extent in both dimensions.
PoolingSpec square_pooling(PoolingMode mode, std::int64_t extent, std::int64_t stride, std::int64_t padding);

// Adds a convolution and a ReLU. Their names are, for example, "conv1_2" and "relu1_2", or "inception_3a_1x1"
// and "inception_3a_1x1_relu".
Tensor convolution_relu(NetworkBuilder& net, const std::string& name, Tensor x, const ConvolutionSpec& spec);

// Adds a convolution without bias, NAME, and batch normalisation, NAME_bn, whose shift replaces the bias.
Tensor convolution_norm(NetworkBuilder& net, const std::string& name, Tensor x, ConvolutionSpec spec);

// Adds the end of the classic networks: hidden layers with ReLU, a layer with one output per class, and the
// loss. The layers are fc1, relu_fc1, fc2, ..., loss.
void classify(NetworkBuilder& net, Tensor x, const std::vector<std::int64_t>& hidden, std::int64_t classes);

// Adds the end of the other networks: the average of each channel, a layer with one output per class, and the
// loss. The layers are pool, fc, loss.
void classify_average(NetworkBuilder& net, Tensor x, std::int64_t classes);

}  // namespace vdnn::zoo
