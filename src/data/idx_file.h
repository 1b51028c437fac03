#pragma once
// The IDX format of MNIST and related data sets. A file begins with a big-endian magic number (0, 0, element
// type, number of dimensions) and one 32-bit size per dimension. The elements follow. Only gzipped files with
// bytes as elements are supported.

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

// Reads a whole file of unsigned bytes with `rank` dimensions. Decompresses about as many bytes as the header
// specifies, even if a small file contains gigabytes more. Throws DataError if the file cannot be read, is
// not gzip, or is damaged or truncated. Also throws DataError if the magic number or the number of elements
// is wrong. The message has the file, what was expected and what was found.
IdxFile read_idx_file(const std::filesystem::path& path, std::size_t rank);

}  // namespace vdnn
