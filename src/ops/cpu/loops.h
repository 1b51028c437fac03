#pragma once
// Our own loops over arrays. They are split evenly over the compute threads. Each element is computed
// independently, so neither the number of threads nor overwriting in place changes a result.

#include <cstdint>

#include "src/ops/operand_pointers.h"

namespace vdnn::cpu {

using ops::read_pointer;
using ops::write_pointer;

// Calls work(begin, end) for ranges that cover the items [0, count), one per thread. An item has
// `elements_each` elements. `work` must not throw.
template <class Work>
void for_each_range(std::uint64_t count, int threads, const Work& work, std::uint64_t elements_each = 1) {
  // With fewer elements, starting a team costs more than it saves.
  constexpr std::uint64_t kLeastElements = 16384;
  const auto parts = static_cast<std::uint64_t>(threads);
#pragma omp parallel for num_threads(threads) if (threads > 1 && count * elements_each >= kLeastElements) \
    schedule(static)
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t base = count / parts;
    const std::uint64_t rest = count % parts;
    const std::uint64_t begin = part * base + (part < rest ? part : rest);
    work(begin, begin + base + (part < rest ? 1 : 0));
  }
}

inline std::uint64_t piece_count(std::uint64_t count, std::uint64_t size) {
  return count / size + (count % size == 0 ? 0 : 1);
}

// Calls work(index, begin, end) for pieces of [0, count) of `size` elements each (the last may be shorter).
// The pieces do not depend on the number of threads. So the number of threads does not change sums that are
// computed first within pieces and then over the pieces. `work` must not throw.
template <class Work>
void for_each_piece(std::uint64_t count, std::uint64_t size, int threads, const Work& work) {
  const std::uint64_t pieces = piece_count(count, size);
#pragma omp parallel for num_threads(threads) if (threads > 1 && pieces > 1) schedule(static)
  for (std::uint64_t index = 0; index < pieces; ++index) {
    work(index, index * size, index + 1 < pieces ? (index + 1) * size : count);
  }
}

}  // namespace vdnn::cpu
