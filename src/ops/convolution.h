#pragma once
// A convolution as vendors' libraries describe it: by the operands of its forward pass. Each list (input to
// dilation) has one entry per spatial dimension.

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
  Dims filter;  // K, C / groups, spatial dimensions
};
ConvolutionDims dims_of(const Convolution& convolution);

// The dilation with one entry per spatial dimension, even if it is 1 everywhere.
Dims dilation_of(const Convolution& convolution);

// Adds a second spatial dimension, of extent 1, to a convolution with one. Libraries support only two or
// three spatial dimensions.
Convolution planar(Convolution convolution);

// A transposed convolution is computed as the convolution from its output to its input. Returns the pass of
// that convolution for a pass of the layer: forward pass and data gradient are exchanged.
Direction exchanged(Direction pass);

// Returns the convolution of a layer from `x` to `y`; the network has already checked the shapes. For a
// transposed convolution, the returned convolution is from y to x, and its data gradient is the layer's
// forward pass.
Convolution convolution_of(const ConvolutionSpec& spec, const TensorType& x, const TensorType& y);
Convolution convolution_of(const TransposedConvolutionSpec& spec, const TensorType& x, const TensorType& y);

}  // namespace vdnn::ops
