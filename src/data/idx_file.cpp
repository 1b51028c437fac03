#include "src/data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "src/data/data_file.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunkBytes = std::size_t{1} << 18;

// Decompresses a gzip file only as far as requested, since a small file may decompress to gigabytes more than
// its IDX header specifies. Reports an error if the file is not compressed or has bytes after the compressed
// data; zlib's own file functions accept such files.
class GzipReader {
 public:
  explicit GzipReader(const fs::path& path) : path_(path), file_(read_data_file(path)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      reject_file(path_, "zlib cannot start");
    }
  }
  ~GzipReader() { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  const std::vector<std::uint8_t>& contents() const { return contents_; }
  // Whether contents() has all of the file's data.
  bool ended() const { return ended_; }

  // Decompresses until contents() has at least `size` bytes or the file ends.
  void read_to(std::uint64_t size) {
    while (!ended_ && contents_.size() < size) {
      read_chunk();
    }
  }

  std::vector<std::uint8_t> take_contents() && { return std::move(contents_); }

 private:
  void read_chunk() {
    if (!refill()) {
      reject_file(path_, "truncated: expected more gzip data after " + std::to_string(position_) +
                             " bytes, found the end of the file");
    }
    stream_.next_out = output_.data();
    stream_.avail_out = static_cast<uInt>(output_.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) {
      reject_file(path_,
                  std::string("damaged gzip data after ") + std::to_string(contents_.size()) +
                      " decompressed bytes: " + (stream_.msg != nullptr ? stream_.msg : zError(status)));
    }
    contents_.insert(contents_.end(), output_.data(), stream_.next_out);
    ended_ = status == Z_STREAM_END;
    if (ended_ && refill()) {
      reject_file(path_, "expected the file to end with its gzip data, found more bytes");
    }
  }

  // Passes the next chunk to zlib, whose counts have 32 bits. Returns false at the end of the file.
  bool refill() {
    if (stream_.avail_in == 0) {
      const std::size_t size = std::min(kChunkBytes, file_.size() - position_);
      stream_.next_in = file_.data() + position_;
      stream_.avail_in = static_cast<uInt>(size);
      position_ += size;
    }
    return stream_.avail_in != 0;
  }

  fs::path path_;
  std::vector<std::uint8_t> file_;
  std::size_t position_ = 0;  // bytes of the file passed to zlib
  z_stream stream_{};
  std::vector<Bytef> output_ = std::vector<Bytef>(kChunkBytes);
  std::vector<std::uint8_t> contents_;
  bool ended_ = false;
};

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  return (std::uint32_t{bytes[0]} << 24) | (std::uint32_t{bytes[1]} << 16) | (std::uint32_t{bytes[2]} << 8) |
         bytes[3];
}

std::string hexadecimal(std::uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", static_cast<unsigned>(value));
  return text.data();
}

// Reads the dimensions from a header whose magic number has been checked.
Dims dims_of(const fs::path& path, std::span<const std::uint8_t> header) {
  Dims dims;
  for (std::size_t at = 4; at < header.size(); at += 4) {
    dims.push_back(big_endian(header.subspan(at)));
    if (dims.back() == 0) {
      reject_file(path,
                  "expected dimensions of at least 1, found 0 in dimension " + std::to_string(at / 4 - 1));
    }
  }
  return dims;
}

// The number of elements. Rejects a number to which the header's bytes and one more byte cannot be added in
// 64 bits.
std::uint64_t elements_of(const fs::path& path, const Dims& dims, std::uint64_t header_bytes) {
  try {
    const std::uint64_t elements = element_count(dims);
    checked_add(elements, header_bytes + 1);
    return elements;
  } catch (const InvalidArgument& error) {
    reject_file(path, error.what());
  }
}

}  // namespace

IdxFile read_idx_file(const fs::path& path, std::size_t rank) {
  GzipReader reader(path);
  const std::size_t header_bytes = 4 + 4 * rank;
  reader.read_to(header_bytes);
  if (reader.contents().size() < header_bytes) {
    reject_file(path, "truncated: expected a header of " + std::to_string(header_bytes) + " bytes, found " +
                          std::to_string(reader.contents().size()) + " bytes");
  }
  const auto header = std::span(reader.contents()).first(header_bytes);
  constexpr std::uint32_t kUnsignedBytes = 0x0800;
  const std::uint32_t expected_magic = kUnsignedBytes + static_cast<std::uint32_t>(rank);
  if (big_endian(header) != expected_magic) {
    reject_file(path, "expected the magic number " + hexadecimal(expected_magic) + " (unsigned bytes, " +
                          std::to_string(rank) + " dimensions), found " + hexadecimal(big_endian(header)));
  }
  const Dims dims = dims_of(path, header);
  const std::uint64_t elements = elements_of(path, dims, header_bytes);
  reader.read_to(header_bytes + elements + 1);
  const std::uint64_t found = reader.contents().size() - header_bytes;
  if (found != elements || !reader.ended()) {
    reject_file(path, "the header specifies " + to_string(dims) + ": expected " + std::to_string(elements) +
                          " elements, found " + (reader.ended() ? "" : "at least ") + std::to_string(found));
  }
  return {.dims = dims, .contents = std::move(reader).take_contents()};
}

}  // namespace vdnn
