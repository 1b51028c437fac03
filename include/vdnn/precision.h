#pragma once
// Mixed precision (Micikevicius et al., ICLR 2018): feature maps, their gradients and the filters that
// multiply them are stored in two bytes (fp16 or bf16), sums are taken in fp32, and the parameters themselves
// stay fp32.
//
// Every value of a tape has a type, and an op computes with what its operands have. `Network::with_precision`
// types the feature maps: each layer reads and makes one floating-point type, and where types meet, a
// conversion is inserted, a layer like any other ("images.to_bf16" makes "images.bf16"). In fp32, whatever
// the precision: losses and their metrics, custom layers, statistics, scale and shift of normalisations,
// biases, all gradients of parameters, and the optimizer's state.
//
// Checkpoints and hashes see the fp32 parameters, so that a checkpoint may go on in another precision. A
// filter that is read in a narrow type has a copy in that type, which its update writes.

#include <set>
#include <string>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn {

struct PrecisionOptions {
  // Of feature maps and gradient maps: kF32, kF16 or kBf16.
  DataType storage = DataType::kF32;
  // Layers that keep fp32, by name ("fc3") or kind ("batch_normalization"). Each must name a layer of the
  // network.
  std::vector<std::string> fp32_layers;
  // In whatever order, and however often, layers are named.
  friend bool operator==(const PrecisionOptions& a, const PrecisionOptions& b) {
    return a.storage == b.storage && std::set(a.fp32_layers.begin(), a.fp32_layers.end()) ==
                                         std::set(b.fp32_layers.begin(), b.fp32_layers.end());
  }
};

}  // namespace vdnn
