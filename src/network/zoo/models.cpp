#include "src/network/zoo/models.h"

namespace vdnn::zoo {

ConvolutionSpec square_convolution(std::int64_t filters, std::int64_t extent, std::int64_t stride,
                                   std::int64_t padding, std::size_t rank) {
  return {.filters = filters,
          .kernel = Dims(rank, extent),
          .stride = Dims(rank, stride),
          .padding = Dims(rank, padding)};
}

PoolingSpec square_pooling(PoolingMode mode, std::int64_t extent, std::int64_t stride, std::int64_t padding) {
  return {
      .mode = mode, .kernel = {extent, extent}, .stride = {stride, stride}, .padding = {padding, padding}};
}

Tensor convolution_relu(NetworkBuilder& net, const std::string& name, Tensor x, const ConvolutionSpec& spec) {
  const std::string conv = "conv";
  x = net.convolution(name, x, spec);
  return net.relu(name.starts_with(conv) ? "relu" + name.substr(conv.size()) : name + "_relu", x);
}

Tensor convolution_norm(NetworkBuilder& net, const std::string& name, Tensor x, ConvolutionSpec spec) {
  spec.bias = false;
  x = net.convolution(name, x, std::move(spec));
  return net.batch_normalization(name + "_bn", x);
}

void classify(NetworkBuilder& net, Tensor x, const std::vector<std::int64_t>& hidden, std::int64_t classes) {
  std::size_t number = 1;
  for (const std::int64_t outputs : hidden) {
    const std::string name = "fc" + std::to_string(number++);
    x = net.fully_connected(name, x, {.outputs = outputs});
    x = net.relu("relu_" + name, x);
  }
  x = net.fully_connected("fc" + std::to_string(number), x, {.outputs = classes});
  net.softmax_cross_entropy("loss", x);
}

void classify_average(NetworkBuilder& net, Tensor x, std::int64_t classes) {
  x = net.global_pooling("pool", x, PoolingMode::kAverage);
  x = net.fully_connected("fc", x, {.outputs = classes});
  net.softmax_cross_entropy("loss", x);
}

}  // namespace vdnn::zoo
