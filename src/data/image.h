#pragma once
// An image in memory, as the decoders return it.

#include <cstdint>
#include <vector>

namespace vdnn {

struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t channels = 0;         // 1: grey; 3: red, green, blue
  std::vector<std::uint8_t> pixels;  // row by row, the channels of a pixel together
};

// An image with room for its pixels. Throws DataError when width or height is 0 or there are more than 2^27
// pixels: what the header of a damaged or hostile file claims is not to take gigabytes (a decoder's own copy
// of a progressive JPEG included).
Image make_image(std::uint64_t width, std::uint64_t height, std::int64_t channels);

// `image`, of 1 or 3 channels, with 1 or 3 channels: grey is repeated, colour becomes its luma (ITU-R
// BT.601), rounded.
Image with_channels(Image image, std::int64_t channels);

}  // namespace vdnn
