#pragma once
// The classic catalog, whoever says by what convolutions are computed.

#include <functional>
#include <memory>
#include <string>

#include "src/ops/convolution.h"
#include "vdnn/op_catalog.h"

namespace vdnn::classic {

// Of a pass over a convolution, forward or one of the gradients; at least one, the first choice first.
// Thread-safe.
using ConvolutionAlgorithms = std::function<std::vector<Algorithm>(const ops::Convolution&, Direction)>;

// `source`: what algorithms_source() reports.
std::unique_ptr<OpCatalog> make_catalog(ConvolutionAlgorithms algorithms, std::string source);

}  // namespace vdnn::classic
