#include "src/ops/convolution.h"

namespace vdnn::ops {

namespace {

Dims space_of(const TensorType& type) {
  return {type.dims.begin() + 2, type.dims.end()};
}

}  // namespace

Dims dilation_of(const Convolution& convolution) {
  return convolution.dilation.empty() ? Dims(convolution.kernel.size(), 1) : convolution.dilation;
}

Convolution convolution_of(const ConvolutionSpec& spec, const TensorType& x, const TensorType& y) {
  return {.batch = x.dims[0],
          .input_channels = x.dims[1],
          .output_channels = y.dims[1],
          .input = space_of(x),
          .output = space_of(y),
          .kernel = spec.kernel,
          .stride = spec.stride,
          .padding = spec.padding,
          .dilation = spec.dilation,
          .groups = spec.groups};
}

Convolution convolution_of(const TransposedConvolutionSpec& spec, const TensorType& x, const TensorType& y) {
  return {.batch = y.dims[0],
          .input_channels = y.dims[1],
          .output_channels = x.dims[1],
          .input = space_of(y),
          .output = space_of(x),
          .kernel = spec.kernel,
          .stride = spec.stride,
          .padding = spec.padding,
          .dilation = {}};
}

}  // namespace vdnn::ops
