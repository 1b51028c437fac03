#include "src/data/image.h"

#include <string>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 27;

Image to_rgb(const Image& grey) {
  Image result{.width = grey.width, .height = grey.height, .channels = 3, .pixels = {}};
  result.pixels.reserve(grey.pixels.size() * 3);
  for (const std::uint8_t pixel : grey.pixels) {
    result.pixels.insert(result.pixels.end(), 3, pixel);
  }
  return result;
}

Image to_grey(Image rgb) {
  const std::size_t pixels = rgb.pixels.size() / 3;
  for (std::size_t i = 0; i < pixels; ++i) {
    const std::uint8_t* const pixel = &rgb.pixels[3 * i];
    rgb.pixels[i] =
        static_cast<std::uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
  }
  rgb.pixels.resize(pixels);
  rgb.channels = 1;
  return rgb;
}

}  // namespace

Image make_image(std::uint64_t width, std::uint64_t height, std::int64_t channels) {
  if (width == 0 || height == 0 || width > kMaxPixels / height) {
    throw DataError("expected an image of at least one pixel and at most " + std::to_string(kMaxPixels) +
                    ", found " + std::to_string(width) + "x" + std::to_string(height));
  }
  return {.width = static_cast<std::int64_t>(width),
          .height = static_cast<std::int64_t>(height),
          .channels = channels,
          .pixels = std::vector<std::uint8_t>(width * height * static_cast<std::uint64_t>(channels))};
}

Image with_channels(Image image, std::int64_t channels) {
  if (image.channels == channels) {
    return image;
  }
  return channels == 3 ? to_rgb(image) : to_grey(std::move(image));
}

}  // namespace vdnn
