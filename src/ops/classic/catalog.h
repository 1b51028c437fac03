#pragma once
// The classic catalog with any source of convolution algorithms.

#include <functional>
#include <memory>
#include <string>

#include "src/ops/convolution.h"
#include "vdnn/op_catalog.h"
#include "vdnn/sim_device.h"

namespace vdnn::classic {

// Returns the algorithms of one pass of a convolution, forward or one of the gradients: at least one
// algorithm, the first choice first. Thread-safe.
using ConvolutionAlgorithms =
    std::function<std::vector<Algorithm>(const ops::Convolution&, Direction, DataType elements)>;

// Makes the catalog; its algorithms_source() returns `source`. Fully connected layers have one algorithm, in
// precision `matrix_products`.
std::unique_ptr<OpCatalog> make_catalog(ConvolutionAlgorithms algorithms, std::string source,
                                        ProductPrecision matrix_products = ProductPrecision::kFp32);

// The catalog of a simulated GPU with tensor cores (its profile has a rate for TF32 or a narrow type) whose
// engines are not known. The algorithms are the classic ones, with products in TF32 if permitted, ordered by
// the profile's rates. The vDNN paper does not use narrow types. So if `storage` is narrow, the source's name
// states that narrow types are modelled.
std::unique_ptr<OpCatalog> make_tensor_core_catalog(const SimProfile& profile,
                                                    const ProductPrecisions& precisions, DataType storage);

}  // namespace vdnn::classic
