#pragma once
// Mixed precision (Micikevicius et al., ICLR 2018): feature maps, their gradients and the filters that
// multiply them are stored in two bytes (fp16 or bf16). Sums are computed in fp32, and the parameters
// themselves stay fp32.
//
// Every value of a tape has a type, and an op computes with the types of its operands.
// `Network::with_precision` assigns types to the feature maps. Each layer reads and makes one floating-point
// type. Between different types, a conversion is inserted, a layer like any other ("images.to_bf16" makes
// "images.bf16"). The following are fp32 in any precision: losses and their metrics, custom layers,
// statistics, scale and shift of normalisations, biases, all gradients of parameters, and the optimizer's
// state.
//
// Checkpoints and hashes contain the fp32 parameters, so that training can resume in another precision. A
// filter that is read in a narrow type has a copy in that type, which its update writes.

#include <set>
#include <string>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn {

struct PrecisionOptions {
  // The type of feature maps and gradient maps: kF32, kF16 or kBf16.
  DataType storage = DataType::kF32;
  // Layers that keep fp32, by name ("fc3") or kind ("batch_normalization"). Each must name a layer of the
  // network.
  std::vector<std::string> fp32_layers;
  // Equal if they name the same layers; order and repetition do not matter.
  friend bool operator==(const PrecisionOptions& a, const PrecisionOptions& b) {
    return a.storage == b.storage && std::set(a.fp32_layers.begin(), a.fp32_layers.end()) ==
                                         std::set(b.fp32_layers.begin(), b.fp32_layers.end());
  }
};

}  // namespace vdnn
