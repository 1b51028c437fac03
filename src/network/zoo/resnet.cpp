// ResNet (He et al. 2016). Convolutions have no bias and are followed by batch normalisation. If a block
// changes the size or the channels, its shortcut is a 1x1 convolution (option B). Otherwise it is the
// identity.

#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

enum class Block : std::uint8_t {
  kBasic,      // two 3x3 convolutions
  kBottleneck  // 1x1, 3x3, 1x1 with four times the filters; the 3x3 convolution has the stride ("v1.5")
};

struct Group {
  std::int64_t blocks = 0;
  std::int64_t filters = 0;
  std::int64_t stride = 1;  // of the group's first block
};

Tensor residual_block(NetworkBuilder& net, const std::string& name, Tensor x, Block kind,
                      std::int64_t filters, std::int64_t stride) {
  Tensor y = x;
  std::int64_t outputs = filters;
  if (kind == Block::kBasic) {
    y = convolution_norm(net, name + "_conv1", y, square_convolution(filters, 3, stride, 1));
    y = net.relu(name + "_relu1", y);
    y = convolution_norm(net, name + "_conv2", y, square_convolution(filters, 3, 1, 1));
  } else {
    outputs = 4 * filters;
    y = convolution_norm(net, name + "_conv1", y, square_convolution(filters, 1, 1, 0));
    y = net.relu(name + "_relu1", y);
    y = convolution_norm(net, name + "_conv2", y, square_convolution(filters, 3, stride, 1));
    y = net.relu(name + "_relu2", y);
    y = convolution_norm(net, name + "_conv3", y, square_convolution(outputs, 1, 1, 0));
  }
  if (stride != 1 || net.type(x).dims[1] != outputs) {
    x = convolution_norm(net, name + "_shortcut", x, square_convolution(outputs, 1, stride, 0));
  }
  return net.relu(name + "_relu", net.add(name + "_add", x, y));
}

void build_groups(NetworkBuilder& net, Tensor x, Block kind, const std::vector<Group>& groups,
                  std::int64_t classes) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::int64_t b = 0; b < groups[g].blocks; ++b) {
      const std::string name = "block" + std::to_string(g + 1) + "_" + std::to_string(b + 1);
      x = residual_block(net, name, x, kind, groups[g].filters, b == 0 ? groups[g].stride : 1);
    }
  }
  classify_average(net, x, classes);
}

// The networks of section 4.1.
Model imagenet_model(std::string name, Block kind, const std::vector<std::int64_t>& blocks) {
  const std::vector<Group> groups{
      {blocks[0], 64, 1}, {blocks[1], 128, 2}, {blocks[2], 256, 2}, {blocks[3], 512, 2}};
  return {.name = std::move(name),
          .input = {3, 224, 224},
          .classes = 1000,
          .build = [kind, groups](NetworkBuilder& net, std::int64_t classes) {
            Tensor x = convolution_norm(net, "conv1", net.input(), square_convolution(64, 7, 2, 3));
            x = net.relu("relu1", x);
            x = net.pooling("pool1", x, square_pooling(PoolingMode::kMax, 3, 2, 1));
            build_groups(net, x, kind, groups, classes);
          }};
}

// The networks of section 4.2, with 6 n + 2 layers.
Model cifar_model(std::string name, std::int64_t n) {
  return {.name = std::move(name),
          .input = {3, 32, 32},
          .classes = 10,
          .build = [n](NetworkBuilder& net, std::int64_t classes) {
            Tensor x = convolution_norm(net, "conv1", net.input(), square_convolution(16, 3, 1, 1));
            x = net.relu("relu1", x);
            build_groups(net, x, Block::kBasic, {{n, 16, 1}, {n, 32, 2}, {n, 64, 2}}, classes);
          }};
}

}  // namespace

std::vector<Model> resnets() {
  return {imagenet_model("resnet18", Block::kBasic, {2, 2, 2, 2}),
          imagenet_model("resnet50", Block::kBottleneck, {3, 4, 6, 3}),
          imagenet_model("resnet152", Block::kBottleneck, {3, 8, 36, 3}),
          cifar_model("resnet20", 3),
          cifar_model("resnet56", 9),
          cifar_model("resnet110", 18)};
}

}  // namespace vdnn::zoo
