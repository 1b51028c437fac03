#pragma once
// Windows that slide over padded input (convolution, pooling), one axis at a time. Network builder and
// catalogs share this arithmetic.

#include <cstdint>
#include <optional>

#include "vdnn/tensor.h"

namespace vdnn {

// All numbers are positive; padding may be 0.
struct WindowAxis {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;

  // Elements from the first to the last, both included; empty if the number overflows 64 bits.
  std::optional<std::int64_t> extent() const {
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(kernel - 1, dilation, &extent) || __builtin_add_overflow(extent, 1, &extent)) {
      return std::nullopt;
    }
    return extent;
  }

  // Whether every window covers some input. Padding alone has no largest element and no average.
  bool reaches_input() const { return padding < extent().value_or(0); }

  // The number of positions of the window along `input` elements; empty if it fits nowhere. Requires
  // reaches_input().
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
