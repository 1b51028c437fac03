#pragma once
// The blocks of a network's forward pass, between which programs checkpoint: the residual blocks of a ResNet,
// the layers of a DenseNet, the modules of an Inception, the levels of a U-Net.
//
// A block ends with its only value that the rest of the forward pass needs. In addition, several ops read
// that value, or the op that made it joins several values. Values of earlier blocks may still be needed after
// a block, for example the skip connections of a U-Net. A network without forks and joins is a chain, in
// which every layer with weights begins a block.

#include <vector>

#include "vdnn/tape.h"

namespace vdnn::peers {

// Consecutive ops of the forward pass, from `begin` to before `end`.
struct Block {
  OpId begin = 0;
  OpId end = 0;
  friend bool operator==(const Block&, const Block&) = default;
};

// The blocks in order. Together they are the forward pass.
std::vector<Block> find_blocks(const Tape& tape);

// Joins neighbouring blocks into `count` blocks (at least 1) of about equal numbers. If `count` is at least
// the number of blocks, they stay as they are.
std::vector<Block> join_blocks(const std::vector<Block>& blocks, std::size_t count);

}  // namespace vdnn::peers
