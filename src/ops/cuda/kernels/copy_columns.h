#pragma once
// Rows of so many columns, a given distance apart on either side: a concatenation of channels and its slices,
// or, all columns, a copy.

#include <cstdint>

#include "src/ops/cuda/kernels/divisor.h"

namespace vdnn::cuda {

struct CopyColumns {
  static constexpr const char* kName = "copy_columns";
  const float* from = nullptr;
  std::uint64_t from_distance = 0;
  float* to = nullptr;
  std::uint64_t to_distance = 0;
  Divisor columns;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t row = columns.quotient(i);
    const std::uint64_t column = i - row * columns.value();
    to[row * to_distance + column] = from[row * from_distance + column];
  }
};

}  // namespace vdnn::cuda
