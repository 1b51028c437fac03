#pragma once
// Divides a network's forward pass into the blocks between which programs place checkpoints. Blocks are the
// residual blocks of a ResNet, the layers of a DenseNet, the modules of an Inception or the levels of a
// U-Net.
//
// A block ends with an op whose result meets two conditions. The result is the only value of the block that
// the rest of the forward pass needs. And it is a fork, which several ops read, or the op joins several
// values. Values of earlier blocks may still be needed after a block, for example the skip connections of a
// U-Net. A network without forks and joins is a chain, in which every layer with weights begins a block.

#include <vector>

#include "vdnn/tape.h"

namespace vdnn::peers {

// Consecutive ops of the forward pass, from `begin` up to, but not including, `end`.
struct Block {
  OpId begin = 0;
  OpId end = 0;
  friend bool operator==(const Block&, const Block&) = default;
};

// Returns the blocks in order. Together they contain all ops of the forward pass.
std::vector<Block> find_blocks(const Tape& tape);

// Joins neighbouring blocks into `count` (at least 1) larger ones, each of about the same number of blocks.
// Returns `blocks` unchanged if there are at most `count`.
std::vector<Block> join_blocks(const std::vector<Block>& blocks, std::size_t count);

}  // namespace vdnn::peers
