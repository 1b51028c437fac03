#pragma once
// Sizes of blocks of host memory: sixteen from each power of two to the next. Tensors of about the same size
// share blocks, and less than a sixteenth of a block is unused.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>

namespace vdnn::stash {

// The smallest block size of at least `bytes` (> 0).
constexpr std::uint64_t host_block_bytes(std::uint64_t bytes) {
  constexpr int kBitsOfParts = 4;
  const int bits = static_cast<int>(std::bit_width(bytes));
  const std::uint64_t step = bits > kBitsOfParts + 1 ? std::uint64_t{1} << (bits - 1 - kBitsOfParts) : 1;
  return (bytes + step - 1) / step * step;
}

// The number of blocks of each size that are needed at once.
using HostBlockCounts = std::map<std::uint64_t, std::size_t>;

}  // namespace vdnn::stash
