// JPEG and PNG images (src/data/image_file.cpp). PNG images are also tested with corrected checksums.

#include <algorithm>
#include <cmath>

#include "fuzz/target.h"
#include "src/data/image_file.h"
#include "tests/data/encoded_images.h"
#include "vdnn/error.h"

namespace vdnn::fuzz {

namespace {

std::optional<Image> decode(Input input, std::int64_t channels) {
  return attempt<DataError>([&] { return decode_image(input, channels); });
}

bool has_size(const Image& image, std::int64_t channels) {
  return image.width > 0 && image.height > 0 && image.channels == channels &&
         image.pixels.size() == static_cast<std::size_t>(image.width * image.height * channels);
}

void check_scaled(const Image& image, std::int64_t height, std::int64_t width) {
  std::vector<float> brightness(static_cast<std::size_t>(height * width * image.channels), -1.0F);
  crop_and_scale(image, height, width, brightness);
  require(std::ranges::all_of(brightness, [](float value) { return value >= 0 && value <= 1; }),
          "brightness is from 0 to 1");
}

bool run_bytes(Input input) {
  const std::optional<Image> colour = decode(input, 3);
  const std::optional<Image> grey = decode(input, 1);
  require(colour.has_value() == grey.has_value(), "damage does not depend on the requested channels");
  if (!colour) {
    return false;
  }
  require(has_size(*colour, 3) && has_size(*grey, 1), "an image has all of its pixels");
  // This also detects pixels that the decoder does not write, since `colour` and `grey` would differ there.
  require(with_channels(*colour, 1).pixels == grey->pixels, "grey is the luma of colour");
  check_scaled(*colour, 5, 7);
  check_scaled(*grey, 32, 1);
  return true;
}

}  // namespace

bool run_image(Input input) {
  const bool accepted = run_bytes(input);
  const Bytes mended = testing::with_right_checksums(Bytes(input.begin(), input.end()));
  return std::ranges::equal(mended, input) ? accepted : run_bytes(mended);
}

// Images of every kind that the decoders distinguish.
std::vector<Seed> image_seeds() {
  using testing::encode;
  using testing::JpegColour;
  using testing::PngColour;
  const Bytes palette{0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 255};
  const auto levels = [](std::size_t count, std::uint16_t bound) {
    std::vector<std::uint16_t> values(count);
    std::ranges::generate(
        values, [bound, next = 0U]() mutable { return static_cast<std::uint16_t>(37 * next++ % bound); });
    return values;
  };
  const auto pixels = [&](std::size_t count) {
    const std::vector<std::uint16_t> values = levels(count, 256);
    return Bytes(values.begin(), values.end());
  };
  return {
      {"grey.png", encode({.width = 9, .height = 3, .colour = PngColour::kGrey, .values = levels(27, 256)})},
      {"bits.png",
       encode({.width = 9, .height = 3, .colour = PngColour::kGrey, .depth = 1, .values = levels(27, 2)})},
      {"wide.png", encode({.width = 3, .height = 3, .depth = 16, .values = levels(27, 65535)})},
      {"alpha.png", encode({.width = 3,
                            .height = 5,
                            .colour = PngColour::kRgba,
                            .interlaced = true,
                            .values = levels(60, 256)})},
      {"palette.png", encode({.width = 5,
                              .height = 5,
                              .colour = PngColour::kPalette,
                              .depth = 2,
                              .palette = palette,
                              .transparency = {0, 128},
                              .values = levels(25, 4)})},
      {"grey.jpg",
       encode(testing::JpegFile{.width = 9, .height = 9, .colour = JpegColour::kGrey, .pixels = pixels(81)})},
      {"colour.jpg", encode(testing::JpegFile{.width = 17, .height = 5, .pixels = pixels(255)})},
      {"progressive.jpg",
       encode(testing::JpegFile{.width = 8, .height = 9, .progressive = true, .pixels = pixels(216)})},
      {"cmyk.jpg",
       encode(testing::JpegFile{.width = 4, .height = 4, .colour = JpegColour::kCmyk, .pixels = pixels(64)})},
      {"ycck.jpg",
       encode(testing::JpegFile{.width = 4, .height = 4, .colour = JpegColour::kYcck, .pixels = pixels(64)})},
  };
}

}  // namespace vdnn::fuzz
