#pragma once
// The IDX format of MNIST and its kin: big-endian magic (0, 0, element type, number of dimensions), one
// 32-bit size a dimension, then the elements; here bytes, compressed with gzip.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn {

struct IdxFile {
  Dims dims;
  std::vector<std::uint8_t> contents;  // header and elements, decompressed

  std::span<const std::uint8_t> elements() const { return std::span(contents).subspan(4 + 4 * dims.size()); }
};

// Reads a file of unsigned bytes with `rank` dimensions as a whole. Throws DataError (naming the file, what
// was found and what was expected) when it cannot be read, is not gzip, is damaged or truncated, has another
// magic number, or more or fewer elements than its header says. Of what a small file decompresses to, no more
// than the header says is kept.
IdxFile read_idx_file(const std::filesystem::path& path, std::size_t rank);

}  // namespace vdnn
