// VGG (Simonyan and Zisserman 2015), without dropout: groups of 3x3 convolutions with ReLU. Max-pooling
// halves the extents after each group.

#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

struct ConvolutionGroup {
  std::int64_t convolutions = 0;
  std::int64_t filters = 0;
};

Tensor build_groups(NetworkBuilder& net, const std::vector<ConvolutionGroup>& groups) {
  Tensor x = net.input();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string group = std::to_string(g + 1);
    for (std::int64_t i = 1; i <= groups[g].convolutions; ++i) {
      x = convolution_relu(net, "conv" + group + "_" + std::to_string(i), x,
                           square_convolution(groups[g].filters, 3, 1, 1));
    }
    x = net.pooling("pool" + group, x, square_pooling(PoolingMode::kMax, 2, 2, 0));
  }
  return x;
}

// `convolutions`: the number of convolutions in each group.
Model vgg(std::string name, const std::vector<std::int64_t>& convolutions) {
  const std::vector<std::int64_t> filters{64, 128, 256, 512, 512};
  std::vector<ConvolutionGroup> groups;
  for (std::size_t g = 0; g < filters.size(); ++g) {
    groups.push_back({.convolutions = convolutions[g], .filters = filters[g]});
  }
  return {.name = std::move(name),
          .input = {3, 224, 224},
          .classes = 1000,
          .build = [groups](NetworkBuilder& net, std::int64_t classes) {
            classify(net, build_groups(net, groups), {4096, 4096}, classes);
          }};
}

// The deep networks of the vDNN paper: configuration E with `more` additional convolutions per group.
Model deeper_vgg(std::string name, std::int64_t more) {
  return vgg(std::move(name), {2 + more, 2 + more, 4 + more, 4 + more, 4 + more});
}

// A VGG with three groups, small enough for images of 28x28.
void build_fashion_vgg(NetworkBuilder& net, std::int64_t classes) {
  classify(net, build_groups(net, {{2, 32}, {2, 64}, {2, 128}}), {256}, classes);
}

}  // namespace

std::vector<Model> vgg_networks() {
  return {{.name = "fashion-vgg", .input = {1, 28, 28}, .classes = 10, .build = build_fashion_vgg},
          vgg("vgg16", {2, 2, 3, 3, 3}),  // configuration D
          deeper_vgg("vgg19", 0),
          deeper_vgg("vgg116", 20),
          deeper_vgg("vgg216", 40),
          deeper_vgg("vgg316", 60),
          deeper_vgg("vgg416", 80)};
}

}  // namespace vdnn::zoo
