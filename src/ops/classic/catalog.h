#pragma once
// The classic catalog with any source of convolution algorithms.

#include <functional>
#include <memory>
#include <string>

#include "src/ops/convolution.h"
#include "vdnn/op_catalog.h"
#include "vdnn/sim_device.h"

namespace vdnn::classic {

// Returns the algorithms of one pass of a convolution, forward or one of the gradients: at least one, the
// first choice first. Thread-safe.
using ConvolutionAlgorithms =
    std::function<std::vector<Algorithm>(const ops::Convolution&, Direction, DataType elements)>;

// algorithms_source() returns `source`. Fully connected layers have one algorithm, in precision
// `matrix_products`.
std::unique_ptr<OpCatalog> make_catalog(ConvolutionAlgorithms algorithms, std::string source,
                                        ProductPrecision matrix_products = ProductPrecision::kFp32);

// The catalog of a simulated GPU with tensor cores whose engines are not known: its profile has a rate for
// TF32 or a narrow type. The algorithms are the classic ones, with products in TF32 if permitted, ordered by
// the profile's rates. The paper does not use narrow types. If `storage` is narrow, the source names that
// extension of the model.
std::unique_ptr<OpCatalog> make_tensor_core_catalog(const SimProfile& profile,
                                                    const ProductPrecisions& precisions, DataType storage);

}  // namespace vdnn::classic
