#include "src/data/png_image.h"

#include <png.h>

#include <cstring>
#include <string>

#include "src/data/codec_escape.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

struct PngDecoder {
  explicit PngDecoder(std::span<const std::uint8_t> file_bytes) : bytes(file_bytes) {}
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  std::span<const std::uint8_t> bytes;  // the bytes that libpng has not read yet
  png_structp png = nullptr;
  png_infop info = nullptr;
  int passes = 0;  // number of passes of an interlaced image; otherwise 1
  CodecEscape escape{};
  std::uint8_t* pixels = nullptr;
};

// --- called by libpng --------------------------------------------------------------------------------------

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  static_cast<PngDecoder*>(png_get_error_ptr(png))->escape.leave(message);
}

// Ignores warnings, since they concern text and colour profiles, not pixels.
void ignore_warning(png_structp /*png*/, png_const_charp /*message*/) {}

void read_bytes(png_structp png, png_bytep out, std::size_t size) {
  auto& bytes = static_cast<PngDecoder*>(png_get_io_ptr(png))->bytes;
  if (size > bytes.size()) {
    png_error(png, "the data end too early");
  }
  std::memcpy(out, bytes.data(), size);
  bytes = bytes.subspan(size);
}

// --- steps -------------------------------------------------------------------------------------------------

void read_header(PngDecoder& decoder) noexcept {
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, leave, ignore_warning);
  if (decoder.png == nullptr) {
    decoder.escape.leave("libpng cannot start");
  }
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) {
    decoder.escape.leave("libpng cannot start");
  }
  png_set_read_fn(decoder.png, &decoder, read_bytes);
  png_read_info(decoder.png, decoder.info);
  png_set_expand(decoder.png);
  png_set_scale_16(decoder.png);
  png_set_strip_alpha(decoder.png);
  decoder.passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
}

void read_pixels(PngDecoder& decoder) noexcept {
  const std::size_t row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  const png_uint_32 height = png_get_image_height(decoder.png, decoder.info);
  for (int pass = 0; pass < decoder.passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      png_read_row(decoder.png, decoder.pixels + y * row_bytes, nullptr);
    }
  }
  png_read_end(decoder.png, nullptr);
}

void run(PngDecoder& decoder, void (*step)(PngDecoder&) noexcept) {
  if (!take_step(decoder, step)) {
    throw DataError(std::string("damaged or truncated PNG: ") + decoder.escape.message.data());
  }
}

}  // namespace

Image decode_png(std::span<const std::uint8_t> bytes) {
  PngDecoder decoder(bytes);
  run(decoder, read_header);
  Image image = make_image(png_get_image_width(decoder.png, decoder.info),
                           png_get_image_height(decoder.png, decoder.info),
                           png_get_channels(decoder.png, decoder.info));
  decoder.pixels = image.pixels.data();
  run(decoder, read_pixels);
  return image;
}

}  // namespace vdnn
