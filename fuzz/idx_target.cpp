// IDX files (src/data/idx_file.cpp). The input is used both as the file and as the uncompressed contents of a
// gzip file, since no mutation finds a right checksum.

#include <algorithm>

#include "fuzz/gzip.h"
#include "fuzz/scratch.h"
#include "fuzz/target.h"
#include "src/data/idx_file.h"
#include "vdnn/error.h"

namespace vdnn::fuzz {

namespace {

// The header as the format defines it: two zeros, the type, the rank, four bytes per dimension.
Bytes header_of(const Dims& dims) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(dims.size())};
  for (const std::int64_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(dim >> shift));
    }
  }
  return bytes;
}

bool run_file(Input file_bytes) {
  const std::filesystem::path path = scratch().write("input.gz", file_bytes);
  bool accepted = false;
  for (const std::size_t rank : {1, 3}) {
    const auto file = attempt<DataError>([&] { return read_idx_file(path, rank); });
    if (file) {
      require(!accepted, "a file has only one rank");
      accepted = true;
      Bytes whole = header_of(file->dims);
      require(file->dims.size() == rank && file->elements().size() == element_count(file->dims),
              "the header determines the number of elements");
      whole.insert(whole.end(), file->elements().begin(), file->elements().end());
      require(whole == file->contents, "the contents are header and elements");
    }
  }
  return accepted;
}

}  // namespace

bool run_idx(Input input) {
  const bool file = run_file(input);
  return run_file(gzip(input)) || file;
}

std::vector<Seed> idx_seeds() {
  Bytes labels = header_of({3});
  labels.insert(labels.end(), {9, 0, 255});
  Bytes images = header_of({2, 2, 3});
  images.resize(images.size() + 12, 77);
  return {
      {"labels", labels}, {"images", images}, {"labels-gzip", gzip(labels)}, {"images-gzip", gzip(images)}};
}

}  // namespace vdnn::fuzz
