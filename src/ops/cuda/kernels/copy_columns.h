#pragma once
// Copies some columns of a table, with a given distance between rows in source and destination. This
// concatenates channels, takes a slice of a concatenation or, for all columns, copies a table. The type of
// elements does not matter: the caller selects the widest words that divide the rows and their distances.

#include <cstdint>

#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/packs.h"

namespace vdnn::cuda {

using Word16 = Word<std::uint32_t, 4>;
using Word4 = Word<std::uint32_t, 1>;
using Word2 = Word<std::uint16_t, 1>;

template <class Unit>
struct CopyColumns {
  static constexpr const char* kName = "copy_columns";
  const Unit* from = nullptr;
  std::uint64_t from_distance = 0;
  Unit* to = nullptr;
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
