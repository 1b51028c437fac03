#include "fuzz/gzip.h"

#include <zlib.h>

namespace vdnn::fuzz {

Bytes gzip(Input contents) {
  z_stream stream{};
  constexpr int kWithGzipHeader = 16 + MAX_WBITS;
  constexpr int kDefaultMemory = 8;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kWithGzipHeader, kDefaultMemory, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::runtime_error("zlib cannot start");
  }
  Bytes result(deflateBound(&stream, contents.size()));
  Bytes input(contents.begin(), contents.end());
  stream.next_in = input.data();
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = result.data();
  stream.avail_out = static_cast<uInt>(result.size());
  const int status = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) {
    throw std::runtime_error("zlib did not compress");
  }
  return result;
}

}  // namespace vdnn::fuzz
