#pragma once
// Copies between tables of floats, on the stream.

#include "src/ops/cuda/launcher.h"

namespace vdnn::cuda {

// Some columns of a table.
template <class T>
struct Columns {
  T* first = nullptr;
  std::uint64_t distance = 0;  // between rows, in floats
};

inline void launch_copy(const Launcher& launcher, const Columns<const float>& from, const Columns<float>& to,
                        std::uint64_t rows, std::uint64_t columns) {
  launcher.launch(CopyColumns{.from = from.first,
                              .from_distance = from.distance,
                              .to = to.first,
                              .to_distance = to.distance,
                              .columns = Divisor(columns),
                              .elements = rows * columns});
}

// Of the first read into the first write, all of it; nothing where that is the same memory.
inline void launch_copy(const Launcher& launcher, const OpOperands& operands) {
  const auto* const from = read_pointer<float>(operands, 0);
  auto* const to = write_pointer<float>(operands, 0);
  if (from != to) {
    const std::uint64_t elements = operands.writes[0].bytes / sizeof(float);
    launch_copy(launcher, {from, elements}, {to, elements}, 1, elements);
  }
}

}  // namespace vdnn::cuda
