#include "src/data/jpeg_image.h"

// The order matters: jpeglib.h needs FILE from <cstdio>, and jerror.h needs types from jpeglib.h.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <array>
#include <string>
#include <utility>

#include "src/data/codec_escape.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

struct JpegDecoder {
  explicit JpegDecoder(std::span<const std::uint8_t> file_bytes) : bytes(file_bytes) {}
  ~JpegDecoder() { jpeg_destroy_decompress(&info); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  std::span<const std::uint8_t> bytes;
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  CodecEscape escape{};
  std::uint8_t* pixels = nullptr;
};

// --- called by libjpeg -------------------------------------------------------------------------------------

[[noreturn]] void leave(j_common_ptr info) {
  std::array<char, JMSG_LENGTH_MAX> message{};
  info->err->format_message(info, message.data());
  static_cast<JpegDecoder*>(info->client_data)->escape.leave(message.data());
}

// True for a warning that does not concern pixels. It is about header fields that decoders do not need, or
// about stray bytes that some cameras and editors write before a marker.
bool keeps_pixels(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM || warning == JWRN_JFIF_MAJOR ||
         warning == JWRN_NOT_SEQUENTIAL;
}

// Negative levels are warnings. If keeps_pixels() is false, the warning reports missing or damaged data,
// which libjpeg would replace by invented pixels.
void leave_at_damage(j_common_ptr info, int level) {
  if (level < 0 && !keeps_pixels(info->err->msg_code)) {
    leave(info);
  }
}

void print_nothing(j_common_ptr /*info*/) {}

// --- steps -------------------------------------------------------------------------------------------------

void read_header(JpegDecoder& decoder) noexcept {
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  info.err->error_exit = leave;
  info.err->emit_message = leave_at_damage;
  info.err->output_message = print_nothing;
  info.client_data = &decoder;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, decoder.bytes.data(), decoder.bytes.size());
  jpeg_read_header(&info, TRUE);
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info.out_color_space = JCS_CMYK;
      break;
    default:
      info.out_color_space = JCS_RGB;
  }
  jpeg_calc_output_dimensions(&info);
}

void read_pixels(JpegDecoder& decoder) noexcept {
  jpeg_decompress_struct& info = decoder.info;
  jpeg_start_decompress(&info);
  const std::size_t row_bytes =
      static_cast<std::size_t>(info.output_width) * static_cast<std::size_t>(info.output_components);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = decoder.pixels + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
}

void run(JpegDecoder& decoder, void (*step)(JpegDecoder&) noexcept) {
  if (!take_step(decoder, step)) {
    throw DataError(std::string("damaged or truncated JPEG: ") + decoder.escape.message.data());
  }
}

// Adobe's programs store each colour inverted: 255 is no ink. Other programs store the amount of ink.
Image from_cmyk(Image image, bool stores_white) {
  const std::size_t pixels = image.pixels.size() / 4;
  const unsigned flip = stores_white ? 0 : 255;
  for (std::size_t i = 0; i < pixels; ++i) {
    const unsigned black = image.pixels[4 * i + 3] ^ flip;
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned ink = image.pixels[4 * i + c] ^ flip;
      image.pixels[3 * i + c] = static_cast<std::uint8_t>((ink * black + 127) / 255);
    }
  }
  image.pixels.resize(3 * pixels);
  image.channels = 3;
  return image;
}

}  // namespace

Image decode_jpeg(std::span<const std::uint8_t> bytes) {
  JpegDecoder decoder(bytes);
  run(decoder, read_header);
  Image image =
      make_image(decoder.info.output_width, decoder.info.output_height, decoder.info.output_components);
  decoder.pixels = image.pixels.data();
  run(decoder, read_pixels);
  const bool stores_white = decoder.info.saw_Adobe_marker != 0;
  return image.channels == 4 ? from_cmyk(std::move(image), stores_white) : image;
}

}  // namespace vdnn
