#include "tests/data/encoded_images.h"

#include <png.h>
#include <zlib.h>

// jpeglib.h uses FILE without including it.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <cstdlib>

namespace vdnn::testing {

namespace {

int png_colour_type(PngColour colour) {
  switch (colour) {
    case PngColour::kGrey:
      return PNG_COLOR_TYPE_GRAY;
    case PngColour::kGreyAlpha:
      return PNG_COLOR_TYPE_GRAY_ALPHA;
    case PngColour::kRgb:
      return PNG_COLOR_TYPE_RGB;
    case PngColour::kRgba:
      return PNG_COLOR_TYPE_RGB_ALPHA;
    case PngColour::kPalette:
      return PNG_COLOR_TYPE_PALETTE;
  }
  return -1;
}

// Packs values into bytes as PNG does: most significant bits first, and each row begins a new byte.
std::vector<Bytes> packed_rows(const PngFile& file) {
  const std::size_t per_row = file.values.size() / file.height;
  std::vector<Bytes> rows(file.height);
  for (std::size_t y = 0; y < file.height; ++y) {
    rows[y].resize((per_row * static_cast<std::size_t>(file.depth) + 7) / 8);
    for (std::size_t i = 0; i < per_row; ++i) {
      for (int bit = 0; bit < file.depth; ++bit) {
        const std::size_t at = i * static_cast<std::size_t>(file.depth) + static_cast<std::size_t>(bit);
        const int value = file.values[y * per_row + i] >> (file.depth - 1 - bit) & 1;
        rows[y][at / 8] = static_cast<std::uint8_t>(rows[y][at / 8] | value << (7 - at % 8));
      }
    }
  }
  return rows;
}

void set_palette(png_structp png, png_infop info, const PngFile& file) {
  std::vector<png_color> palette;
  for (std::size_t i = 0; i + 2 < file.palette.size(); i += 3) {
    palette.push_back({.red = file.palette[i], .green = file.palette[i + 1], .blue = file.palette[i + 2]});
  }
  if (!palette.empty()) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
}

void set_transparency(png_structp png, png_infop info, const PngFile& file) {
  if (file.transparency.empty()) {
    return;
  }
  const std::uint16_t level = file.transparency[0];
  const png_color_16 colour{.index = 0, .red = level, .green = level, .blue = level, .gray = level};
  png_set_tRNS(png, info, file.transparency.data(), static_cast<int>(file.transparency.size()), &colour);
}

int components(JpegColour colour) {
  switch (colour) {
    case JpegColour::kGrey:
      return 1;
    case JpegColour::kRgb:
      return 3;
    default:
      return 4;
  }
}

J_COLOR_SPACE pixels_space(JpegColour colour) {
  switch (colour) {
    case JpegColour::kGrey:
      return JCS_GRAYSCALE;
    case JpegColour::kRgb:
      return JCS_RGB;
    default:
      return JCS_CMYK;
  }
}

}  // namespace

// encode() sets no error functions. If a library fails, its default function ends the test program.

Bytes encode(const PngFile& file) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes bytes;
  const auto append = [](png_structp writer, png_bytep data, std::size_t size) {
    auto& out = *static_cast<Bytes*>(png_get_io_ptr(writer));
    out.insert(out.end(), data, data + size);
  };
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, file.width, file.height, file.depth, png_colour_type(file.colour),
               file.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  set_palette(png, info, file);
  set_transparency(png, info, file);
  std::vector<Bytes> rows = packed_rows(file);
  std::vector<png_bytep> pointers(rows.size());
  std::ranges::transform(rows, pointers.begin(), [](Bytes& row) { return row.data(); });
  png_write_info(png, info);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

Bytes with_right_checksums(Bytes png) {
  const auto big_endian = [&png](std::size_t at) {
    return std::size_t{png[at]} << 24 | std::size_t{png[at + 1]} << 16 | std::size_t{png[at + 2]} << 8 |
           png[at + 3];
  };
  // Each chunk has length, type, data, and a checksum of type and data.
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::size_t length = big_endian(at);
    if (length > png.size() - at - 12) {
      break;
    }
    const auto checksum =
        static_cast<std::uint32_t>(crc32(0, png.data() + at + 4, static_cast<unsigned>(length + 4)));
    for (std::size_t i = 0; i < 4; ++i) {
      png[at + 8 + length + i] = static_cast<std::uint8_t>(checksum >> (24 - 8 * i));
    }
    at += 12 + length;
  }
  return png;
}

Bytes encode(const JpegFile& file) {
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = file.width;
  info.image_height = file.height;
  info.input_components = components(file.colour);
  info.in_color_space = pixels_space(file.colour);
  jpeg_set_defaults(&info);
  if (file.colour == JpegColour::kYcck) {
    jpeg_set_colorspace(&info, JCS_YCCK);
  }
  // Without Adobe's marker, the values are amounts of ink. With the marker, the values are inverted.
  if (file.colour == JpegColour::kCmyk) {
    info.write_Adobe_marker = FALSE;
  }
  jpeg_set_quality(&info, 95, TRUE);
  if (file.progressive) {
    jpeg_simple_progression(&info);
  }
  jpeg_start_compress(&info, TRUE);
  const std::size_t row_bytes = file.pixels.size() / file.height;
  while (info.next_scanline < info.image_height) {
    Bytes row(file.pixels.begin() + static_cast<std::ptrdiff_t>(info.next_scanline * row_bytes),
              file.pixels.begin() + static_cast<std::ptrdiff_t>((info.next_scanline + 1) * row_bytes));
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  Bytes bytes(data, data + size);
  jpeg_destroy_compress(&info);
  std::free(data);  // jpeg_mem_dest() allocates with malloc()
  return bytes;
}

}  // namespace vdnn::testing
