#pragma once
// Windows that slide over padded input in convolutions and pooling. Each axis is computed alone. The network
// builder and the catalogs share this arithmetic.

#include <cstdint>
#include <optional>

#include "vdnn/tensor.h"

namespace vdnn {

// Numbers must be positive; only `padding` may be 0.
struct WindowAxis {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;

  // The number of input elements from the window's first to its last, both included; empty if it overflows 64
  // bits.
  std::optional<std::int64_t> extent() const {
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(kernel - 1, dilation, &extent) || __builtin_add_overflow(extent, 1, &extent)) {
      return std::nullopt;
    }
    return extent;
  }

  // Whether every position of the window covers at least one element of the input. A window that covers only
  // padding would have no largest element and no average.
  bool reaches_input() const { return padding < extent().value_or(0); }

  // The number of positions of the window along `input` elements; empty if the window fits nowhere. Requires
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
