#pragma once
// The operands and algorithms of a GPU at the time of the vDNN paper (2016, cuDNN 4), for the `sim` driver.
// It has no kernels. Pooling's backward pass reads X, Y and dY, so that only feature maps are kept for it.
// Activation functions work in place, and their backward pass reads Y. Data and filter gradients of a
// convolution are separate ops. Filters are dense.
//
// Convolutions have cuDNN's classes of algorithms where its documentation states that they apply.
// src/ops/classic/convolution_algorithms.h states their workspaces and models their times, by which they are
// ordered, fastest first.

#include <memory>

#include "vdnn/op_catalog.h"

namespace vdnn {

std::unique_ptr<OpCatalog> make_classic_catalog();

}  // namespace vdnn
