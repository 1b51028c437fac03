#pragma once
// Random networks: for a seed of 64 bits one network with the options to train it, the same on every machine.
// They are directed acyclic graphs of every kind of layer over odd shapes: none to three dimensions of space,
// uneven extents, one channel, three or seventeen; feature maps that several layers read or one layer twice;
// branches that only the host looks at; several losses, with targets of their own or shared. They are small:
// a feature map takes a few granules of the `cpu` driver at the most, and what an op computes is bounded.
//
// Losses stay finite for a few steps with a small learning rate, so that every number in the weights tells.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/network.h"

namespace vdnn::testing {

// Tried by the usual run of the suite: seeds from 0.
inline constexpr std::uint64_t kNetworksOfTheSuite = 160;

struct RandomNetwork {
  std::uint64_t seed = 0;
  Network network;
  TrainingOptions training;
};

RandomNetwork make_random_network(std::uint64_t seed);

// For people: the shapes, the numbers of each layer, the optimizer. Equal texts, equal networks.
std::string describe(const RandomNetwork& random);

// The inputs of a step in the order of the network's inputs: images, then targets. Classes are valid for
// every loss that reads them, and now and then -1, for none.
std::vector<std::vector<std::byte>> random_batch(const Network& network, std::uint64_t seed);

}  // namespace vdnn::testing
