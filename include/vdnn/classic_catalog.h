#pragma once
// The operands and algorithms of a GPU at the time of the vDNN paper (2016, cuDNN 4), for the `sim` driver:
// there are no kernels behind it. Pooling's backward pass reads X, Y and dY, so nothing but feature maps is
// kept for it; activations work in place and go back from Y; data and filter gradients of a convolution are
// ops of their own; filters lie densely.
//
// Convolutions come with the classes of algorithms that cuDNN has, where its documentation says that they
// apply; src/ops/classic/convolution_algorithms.h states their workspaces and the model of time that orders
// them, fastest first.

#include <memory>

#include "vdnn/op_catalog.h"

namespace vdnn {

std::unique_ptr<OpCatalog> make_classic_catalog();

}  // namespace vdnn
