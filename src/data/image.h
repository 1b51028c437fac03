#pragma once
// An image in memory, as the decoders return it.

#include <cstdint>
#include <vector>

namespace vdnn {

struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t channels = 0;         // 1: grey; 3: red, green, blue
  std::vector<std::uint8_t> pixels;  // row by row; a pixel's channels are adjacent
};

// Allocates an image. Throws DataError if width or height is 0 or there are more than 2^27 pixels. The limit
// keeps the header of a damaged or hostile file from causing allocations of gigabytes, including a decoder's
// own copy of a progressive JPEG.
Image make_image(std::uint64_t width, std::uint64_t height, std::int64_t channels);

// Converts an image of 1 or 3 channels to `channels`, 1 or 3. Grey is repeated in each channel. Colour
// becomes its luma (ITU-R BT.601), rounded.
Image with_channels(Image image, std::int64_t channels);

}  // namespace vdnn
