#include "src/ops/convolution.h"

namespace vdnn::ops {

namespace {

Dims space_of(const TensorType& type) {
  return {type.dims.begin() + 2, type.dims.end()};
}

Dims joined(Dims front, const Dims& space) {
  front.insert(front.end(), space.begin(), space.end());
  return front;
}

}  // namespace

ConvolutionDims dims_of(const Convolution& convolution) {
  return {.x = joined({convolution.batch, convolution.input_channels}, convolution.input),
          .y = joined({convolution.batch, convolution.output_channels}, convolution.output),
          .filter = joined({convolution.output_channels, convolution.input_channels / convolution.groups},
                           convolution.kernel)};
}

Dims dilation_of(const Convolution& convolution) {
  return convolution.dilation.empty() ? Dims(convolution.kernel.size(), 1) : convolution.dilation;
}

Convolution planar(Convolution convolution) {
  if (convolution.input.size() == 1) {
    convolution.dilation = dilation_of(convolution);
    for (Dims* extents : {&convolution.input, &convolution.output, &convolution.kernel, &convolution.stride,
                          &convolution.dilation}) {
      extents->insert(extents->begin(), 1);
    }
    convolution.padding.insert(convolution.padding.begin(), 0);
  }
  return convolution;
}

Direction exchanged(Direction pass) {
  switch (pass) {
    case Direction::kForward:
      return Direction::kBackwardData;
    case Direction::kBackwardData:
      return Direction::kForward;
    default:
      return pass;
  }
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
  return convolution_of(ConvolutionSpec{.filters = x.dims[1],
                                        .kernel = spec.kernel,
                                        .stride = spec.stride,
                                        .padding = spec.padding,
                                        .dilation = {}},
                        y, x);
}

}  // namespace vdnn::ops
