#pragma once
// Networks for tests of the executor: the zoo's, and random ones.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "tests/fakes/fake_catalog.h"
#include "vdnn/network.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {

using TapePtr = std::shared_ptr<const Tape>;

inline const TrainingOptions kMomentum{.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 0.001F}};

inline Network zoo_network(const std::string& model, std::int64_t batch) {
  return make_model({.model = model, .input = {}, .classes = 0, .batch = batch});
}

inline TapePtr training_tape(const Network& network, const fakes::FakeCatalogOptions& options = {},
                             const TrainingOptions& training = kMomentum) {
  return lower_to_tape(network, fakes::FakeCatalog(options), training);
}

// Grows a network layer by layer: chains of convolutions, rectifiers and pooling. Now and then there is a
// fork whose two branches an addition joins again, so feature maps have one to three readers. Peaks are a few
// dozen granules of the cpu driver.
class RandomNetwork {
 public:
  explicit RandomNetwork(std::uint64_t seed)
      : random_(seed),
        net_("random " + std::to_string(seed),
             {between(3, 6), between(1, 3), 8 * between(2, 3), 8 * between(2, 3)}) {}

  Network build() && {
    Tensor x = convolution(net_.input(), between(6, 16));
    const std::int64_t blocks = between(2, 6);
    for (std::int64_t block = 0; block < blocks; ++block) {
      x = grow(x);
    }
    if (between(0, 1) == 1) {
      x = net_.relu(name("relu"), net_.fully_connected(name("fc"), x, {.outputs = between(3, 20)}));
    }
    net_.softmax_cross_entropy("loss", net_.fully_connected("logits", x, {.outputs = between(2, 10)}));
    return std::move(net_).build();
  }

 private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most - least + 1)));
  }
  std::string name(const std::string& kind) { return kind + std::to_string(layers_++); }

  Tensor convolution(Tensor x, std::int64_t filters) {
    return net_.convolution(name("conv"), x,
                            {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  }

  Tensor grow(Tensor x) {
    switch (between(0, 3)) {
      case 0:
        return net_.relu(name("relu"), convolution(x, between(6, 16)));
      case 1:
        return convolution(x, between(6, 16));
      case 2:
        return fork(x);
      default:
        return pool(x);
    }
  }

  // Both branches read the same feature map; sometimes the addition's result is joined with it again.
  Tensor fork(Tensor x) {
    const std::int64_t filters = net_.type(x).dims[1];
    const Tensor left = net_.relu(name("relu"), convolution(x, filters));
    const Tensor right = between(0, 1) == 0 ? convolution(x, filters) : x;
    const Tensor joined = net_.add(name("add"), left, right);
    return between(0, 1) == 0 ? joined : net_.add(name("add"), joined, x);
  }

  Tensor pool(Tensor x) {
    const Dims& dims = net_.type(x).dims;
    if (dims[2] < 2 || dims[3] < 2) {
      return net_.relu(name("relu"), x);
    }
    return net_.pooling(name("pool"), x,
                        {.mode = between(0, 1) == 0 ? PoolingMode::kMax : PoolingMode::kAverage,
                         .kernel = {2, 2},
                         .stride = {2, 2},
                         .padding = {0, 0}});
  }

  SplitMix64 random_;
  int layers_ = 0;
  NetworkBuilder net_;
};

inline Network random_network(std::uint64_t seed) {
  return RandomNetwork(seed).build();
}

}  // namespace vdnn::testing
