#pragma once
// A convolution as vendors' libraries describe it: by the operands of its forward pass. Lists of space and
// windows have one entry per dimension.

#include <cstdint>

#include "vdnn/op_catalog.h"
#include "vdnn/tensor.h"

namespace vdnn::ops {

struct Convolution {
  std::int64_t batch = 0;
  std::int64_t input_channels = 0;
  std::int64_t output_channels = 0;
  Dims input;
  Dims output;
  Dims kernel;
  Dims stride;
  Dims padding;
  Dims dilation;  // empty: 1 everywhere
  std::int64_t groups = 1;
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

struct ConvolutionDims {
  Dims x;
  Dims y;
  Dims filter;  // K, C / groups, space
};
ConvolutionDims dims_of(const Convolution& convolution);

// One entry per dimension.
Dims dilation_of(const Convolution& convolution);

// Adds a second dimension of space, of extent 1, to a convolution with one dimension. Libraries support only
// two or three.
Convolution planar(Convolution convolution);

// The pass of the convolution from the layer's output to its input that corresponds to a pass of the layer:
// forward pass and data gradient are exchanged.
Direction exchanged(Direction pass);

// The convolution of a layer from `x` to `y`, whose shapes a network has checked. For a transposed
// convolution the result goes from y to x, and the layer's forward pass is the result's data gradient.
Convolution convolution_of(const ConvolutionSpec& spec, const TensorType& x, const TensorType& y);
Convolution convolution_of(const TransposedConvolutionSpec& spec, const TensorType& x, const TensorType& y);

}  // namespace vdnn::ops
