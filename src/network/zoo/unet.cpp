// A U-Net (Ronneberger et al. 2015, Cicek et al. 2016) as nnU-Net configures it (Isensee et al. 2021). Each
// level has two convolutions, each followed by instance normalisation and leaky ReLU. On the way down, a
// stride of 2 in a level's first convolution replaces pooling. On the way up, a transposed convolution
// doubles the size; its output precedes the skip connection in the concatenation. The number of spatial
// dimensions is the input's.

#include <array>

#include "src/network/zoo/models.h"

namespace vdnn::zoo {

namespace {

constexpr std::array<std::int64_t, 3> kFilters{16, 32, 64};  // by level
constexpr float kNegativeSlope = 0.01F;

Tensor convolution_block(NetworkBuilder& net, const std::string& level, const std::string& number, Tensor x,
                         std::int64_t filters, std::int64_t stride) {
  const std::size_t rank = net.type(x).spatial_rank();
  x = net.convolution(level + "_conv" + number, x, square_convolution(filters, 3, stride, 1, rank));
  x = net.instance_normalization(level + "_norm" + number, x);
  return net.relu(level + "_relu" + number, x, kNegativeSlope);
}

Tensor two_convolutions(NetworkBuilder& net, const std::string& level, Tensor x, std::int64_t filters,
                        std::int64_t stride) {
  x = convolution_block(net, level, "1", x, filters, stride);
  return convolution_block(net, level, "2", x, filters, 1);
}

Tensor double_size(NetworkBuilder& net, const std::string& name, Tensor x, std::int64_t filters) {
  const std::size_t rank = net.type(x).spatial_rank();
  return net.transposed_convolution(
      name, x,
      {.filters = filters, .kernel = Dims(rank, 2), .stride = Dims(rank, 2), .padding = Dims(rank, 0)});
}

void build_unet(NetworkBuilder& net, std::int64_t classes) {
  std::vector<Tensor> levels;
  Tensor x = net.input();
  for (std::size_t level = 0; level < kFilters.size(); ++level) {
    x = two_convolutions(net, "enc" + std::to_string(level + 1), x, kFilters.at(level), level == 0 ? 1 : 2);
    levels.push_back(x);
  }
  for (std::size_t level = kFilters.size() - 1; level-- > 0;) {
    const std::string name = "dec" + std::to_string(level + 1);
    x = double_size(net, name + "_up", x, kFilters.at(level));
    x = net.concatenation(name + "_concat", {x, levels[level]});
    x = two_convolutions(net, name, x, kFilters.at(level), 1);
  }
  const std::size_t rank = net.type(x).spatial_rank();
  x = net.convolution("logits", x, square_convolution(classes, 1, 1, 0, rank));
  net.dice_cross_entropy("loss", x);
}

}  // namespace

std::vector<Model> unet() {
  return {{.name = "unet", .input = {1, 64, 64, 64}, .classes = 2, .build = build_unet}};
}

}  // namespace vdnn::zoo
