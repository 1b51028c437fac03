#pragma once
// Windows that slide over padded input (convolution, pooling), one axis at a time: what network builder and
// catalogs have to agree on.

#include <cstdint>
#include <optional>

#include "vdnn/tensor.h"

namespace vdnn {

// Numbers positive, padding not negative. Extents that overflow 64 bits are none.
struct WindowAxis {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;

  // From its first element to its last.
  std::optional<std::int64_t> extent() const {
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(kernel - 1, dilation, &extent) || __builtin_add_overflow(extent, 1, &extent)) {
      return std::nullopt;
    }
    return extent;
  }

  // Otherwise a window might hold nothing but padding: no largest element, an average over none.
  bool reaches_input() const { return padding < extent().value_or(0); }

  // How often a window that reaches its input fits along `input` elements; none where it never does.
  std::optional<std::int64_t> places(std::int64_t input) const {
    std::int64_t room = input - (*extent() - padding);
    if (__builtin_add_overflow(room, padding, &room) || room < 0) {
      return std::nullopt;
    }
    return room / stride + 1;
  }
};

struct Window {
  const Dims& kernel;
  const Dims& stride;
  const Dims& padding;
  const Dims& dilation;  // empty: 1 everywhere

  WindowAxis axis(std::size_t i) const {
    return {.kernel = kernel[i],
            .stride = stride[i],
            .padding = padding[i],
            .dilation = dilation.empty() ? 1 : dilation[i]};
  }
};

}  // namespace vdnn
