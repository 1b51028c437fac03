#pragma once
// Copies between tables, on the launcher's stream.

#include <cstdint>

#include "src/ops/cuda/launcher.h"

namespace vdnn::cuda {

// Adjacent columns of a table, whose elements are bytes.
struct Columns {
  std::uint64_t first = 0;     // address of the first column in the first row
  std::uint64_t distance = 0;  // between rows
};

template <class Unit>
void launch_copy_in(const Launcher& launcher, const Columns& from, const Columns& to, std::uint64_t rows,
                    std::uint64_t row_bytes) {
  const std::uint64_t columns = row_bytes / sizeof(Unit);
  launcher.launch(CopyColumns<Unit>{.from = pointer_to<const Unit>(from.first),
                                    .from_distance = from.distance / sizeof(Unit),
                                    .to = pointer_to<Unit>(to.first),
                                    .to_distance = to.distance / sizeof(Unit),
                                    .columns = Divisor(columns),
                                    .elements = rows * columns});
}

// Copies rows of whole elements of two or four bytes, in the widest words possible.
inline void launch_copy(const Launcher& launcher, const Columns& from, const Columns& to, std::uint64_t rows,
                        std::uint64_t row_bytes) {
  const std::uint64_t all = from.first | from.distance | to.first | to.distance | row_bytes;
  if (all % sizeof(Word16) == 0) {
    launch_copy_in<Word16>(launcher, from, to, rows, row_bytes);
  } else if (all % sizeof(Word4) == 0) {
    launch_copy_in<Word4>(launcher, from, to, rows, row_bytes);
  } else {
    launch_copy_in<Word2>(launcher, from, to, rows, row_bytes);
  }
}

// Copies the whole first read into the first write, unless both are the same memory.
inline void launch_copy(const Launcher& launcher, const OpOperands& operands) {
  const std::uint64_t from = operands.reads[0].begin;
  const AddressRange& to = operands.writes[0];
  if (from != to.begin) {
    launch_copy(launcher, {from, to.bytes}, {to.begin, to.bytes}, 1, to.bytes);
  }
}

}  // namespace vdnn::cuda
