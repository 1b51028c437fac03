#pragma once
// A convolution as libraries of layer mathematics ask for it: by the operands of its forward pass. Space and
// windows have one entry a dimension.

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

// One entry a dimension.
Dims dilation_of(const Convolution& convolution);

// The same with a second dimension of space of one where there is but one: what libraries know.
Convolution planar(Convolution convolution);

// What a pass of the layer is to the convolution from its output to its input: data and their gradient change
// places.
Direction exchanged(Direction pass);

// Of a layer from `x` to `y`; shapes are those of a network, which has checked them. That of a transposed
// convolution goes from y to x: its forward pass is the data gradient of what is returned.
Convolution convolution_of(const ConvolutionSpec& spec, const TensorType& x, const TensorType& y);
Convolution convolution_of(const TransposedConvolutionSpec& spec, const TensorType& x, const TensorType& y);

}  // namespace vdnn::ops
