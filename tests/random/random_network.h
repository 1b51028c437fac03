#pragma once
// Each 64-bit seed defines one random network with its training options, the same on every machine. The
// networks are directed acyclic graphs of every kind of layer over odd shapes: zero to three spatial
// dimensions, uneven extents, and 1, 3 or 17 channels. Several layers, or one layer twice, may read a feature
// map. Some branches end at the host. A network may have several losses, with shared or separate targets. A
// feature map needs at most a few granules of the `cpu` driver, and the work of each op is bounded.
//
// Losses stay finite for a few steps with a small learning rate, so that every weight is meaningful in
// comparisons.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/network.h"

namespace vdnn::testing {

// The usual run of the suite tests this many seeds, from 0.
inline constexpr std::uint64_t kNetworksOfTheSuite = 96;

struct RandomNetwork {
  std::uint64_t seed = 0;
  Network network;
  TrainingOptions training;
};

RandomNetwork make_random_network(std::uint64_t seed);

// A readable description: the shapes, the numbers of each layer, the optimizer. Equal texts mean equal
// networks.
std::string describe(const RandomNetwork& random);

// The inputs of a step in the order of the network's inputs: images, then targets. Classes are valid for
// every loss that reads them; some are -1, which losses ignore.
std::vector<std::vector<std::byte>> random_batch(const Network& network, std::uint64_t seed);

}  // namespace vdnn::testing
