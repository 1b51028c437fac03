#pragma once
// PNG and JPEG files for tests, made by the libraries' own encoders.

#include <cstdint>
#include <vector>

#include "tests/data/samples.h"

namespace vdnn::testing {

enum class PngColour : std::uint8_t { kGrey, kGreyAlpha, kRgb, kRgba, kPalette };

struct PngFile {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  PngColour colour = PngColour::kRgb;
  int depth = 8;
  bool interlaced = false;
  Bytes palette;       // red, green, blue of each entry
  Bytes transparency;  // alpha of the first palette entries, or the one transparent grey level (one byte)
  std::vector<std::uint16_t> values;  // row by row, the channels of a pixel together
};

Bytes encode(const PngFile& file);

// Corrects the checksum of each chunk.
Bytes with_right_checksums(Bytes png);

enum class JpegColour : std::uint8_t { kGrey, kRgb, kCmyk, kYcck };

struct JpegFile {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  JpegColour colour = JpegColour::kRgb;
  bool progressive = false;
  Bytes pixels;  // CMYK and YCCK: as stored; inverted with Adobe's marker, which YCCK files have
};

Bytes encode(const JpegFile& file);

}  // namespace vdnn::testing
