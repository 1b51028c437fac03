#pragma once
// The classic catalog, whoever says by what convolutions are computed.

#include <functional>
#include <memory>
#include <string>

#include "src/ops/convolution.h"
#include "vdnn/op_catalog.h"
#include "vdnn/sim_device.h"

namespace vdnn::classic {

// Of a pass over a convolution, forward or one of the gradients; at least one, the first choice first.
// Thread-safe.
using ConvolutionAlgorithms =
    std::function<std::vector<Algorithm>(const ops::Convolution&, Direction, DataType elements)>;

// `source`: what algorithms_source() reports. Fully connected layers have one algorithm, in that precision.
std::unique_ptr<OpCatalog> make_catalog(ConvolutionAlgorithms algorithms, std::string source,
                                        ProductPrecision matrix_products = ProductPrecision::kFp32);

// For a simulated GPU with tensor cores (its profile has a rate of TF32 or of a narrow type) whose engines
// are not known: the classic algorithms, products in TF32 where that is permitted, in the order of the
// profile's rates. The paper knows no narrow types: `storage` is one where such maps are modelled, and the
// source says so.
std::unique_ptr<OpCatalog> make_tensor_core_catalog(const SimProfile& profile,
                                                    const ProductPrecisions& precisions, DataType storage);

}  // namespace vdnn::classic
