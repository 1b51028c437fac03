#pragma once
// Strides of feature maps and filters for vendors' libraries: channels innermost, the first dimension
// outermost.

#include <cstddef>
#include <cstdint>

#include "vdnn/tensor.h"

namespace vdnn::cuda {

// Returns the strides, in elements, of a dense tensor of shape N x C x spatial dimensions.
inline Dims channels_last_strides(const Dims& dims) {
  Dims strides(dims.size());
  strides[1] = 1;
  std::int64_t stride = dims[1];
  for (std::size_t i = dims.size() - 1; i >= 2; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return strides;
}

}  // namespace vdnn::cuda
