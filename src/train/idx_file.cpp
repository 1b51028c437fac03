#include "src/train/idx_file.h"

#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunkBytes = std::size_t{1} << 18;

[[noreturn]] void reject(const fs::path& path, const std::string& problem) {
  throw DataError("'" + path.string() + "': " + problem);
}

// Decompresses one gzip file piece by piece. zlib's own file functions would read a file that is not
// compressed as it is and ignore what follows the compressed data: both are damage here.
class GzipReader {
 public:
  explicit GzipReader(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) {
      reject(path_, std::string("cannot be read: ") + std::strerror(errno));
    }
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      reject(path_, "zlib cannot start");
    }
  }
  ~GzipReader() { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  std::vector<std::uint8_t> read_all() {
    std::vector<std::uint8_t> contents;
    int status = Z_OK;
    while (status != Z_STREAM_END) {
      if (!refill()) {
        reject(path_, "truncated: expected more gzip data after " + std::to_string(stream_.total_in) +
                          " bytes, found the end of the file");
      }
      stream_.next_out = output_.data();
      stream_.avail_out = static_cast<uInt>(output_.size());
      status = inflate(&stream_, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END) {
        reject(path_, std::string("damaged gzip data after ") + std::to_string(contents.size()) +
                          " decompressed bytes: " + (stream_.msg != nullptr ? stream_.msg : zError(status)));
      }
      contents.insert(contents.end(), output_.data(), stream_.next_out);
    }
    if (refill()) {
      reject(path_, "expected the file to end with its gzip data, found more bytes");
    }
    return contents;
  }

 private:
  // False: the file has ended.
  bool refill() {
    if (stream_.avail_in == 0) {
      file_.read(reinterpret_cast<char*>(input_.data()), static_cast<std::streamsize>(input_.size()));
      if (file_.bad()) {
        reject(path_, std::string("cannot be read: ") + std::strerror(errno));
      }
      stream_.next_in = input_.data();
      stream_.avail_in = static_cast<uInt>(file_.gcount());
    }
    return stream_.avail_in != 0;
  }

  fs::path path_;
  std::ifstream file_;
  z_stream stream_{};
  std::vector<Bytef> input_ = std::vector<Bytef>(kChunkBytes);
  std::vector<Bytef> output_ = std::vector<Bytef>(kChunkBytes);
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

}  // namespace

IdxFile read_idx_file(const fs::path& path, std::size_t rank) {
  IdxFile file{.dims = {}, .contents = GzipReader(path).read_all()};
  const std::span<const std::uint8_t> bytes = file.contents;
  const std::size_t header_bytes = 4 + 4 * rank;
  if (bytes.size() < header_bytes) {
    reject(path, "truncated: expected a header of " + std::to_string(header_bytes) + " bytes, found " +
                     std::to_string(bytes.size()) + " bytes");
  }
  constexpr std::uint32_t kUnsignedBytes = 0x0800;
  const std::uint32_t expected_magic = kUnsignedBytes + static_cast<std::uint32_t>(rank);
  if (big_endian(bytes) != expected_magic) {
    reject(path, "expected the magic number " + hexadecimal(expected_magic) + " (unsigned bytes, " +
                     std::to_string(rank) + " dimensions), found " + hexadecimal(big_endian(bytes)));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    file.dims.push_back(big_endian(bytes.subspan(4 + 4 * i)));
    if (file.dims.back() == 0) {
      reject(path, "expected dimensions of at least 1, found 0 in dimension " + std::to_string(i));
    }
  }
  std::uint64_t elements = 0;
  try {
    elements = element_count(file.dims);
  } catch (const InvalidArgument& error) {
    reject(path, error.what());
  }
  if (bytes.size() - header_bytes != elements) {
    reject(path, "the header says " + to_string(file.dims) + ": expected " + std::to_string(elements) +
                     " elements, found " + std::to_string(bytes.size() - header_bytes));
  }
  return file;
}

}  // namespace vdnn
