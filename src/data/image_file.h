#pragma once
// Reads image files, and converts images to samples.

#include <cstdint>
#include <filesystem>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// Decodes a JPEG or PNG image to 1 or 3 channels. The first bytes determine the format. Throws DataError if
// the data have neither format, or are damaged or truncated.
Image decode_image(std::span<const std::uint8_t> bytes, std::int64_t channels);

// Reads and decodes an image file; its name does not matter. Throws DataError if decode_image() does or if
// the file cannot be read. The message names the file.
Image read_image_file(const std::filesystem::path& path, std::int64_t channels);

// Crops `image` to its largest centred part with the aspect ratio height x width (in whole pixels), and
// scales this part to height x width. Interpolation is bilinear between the centres of pixels, repeats the
// border and is not antialiased. `brightness` (height x width x channels, from 0 to 1) is the exact value,
// rounded once. So an image that already has the size keeps its pixels.
void crop_and_scale(const Image& image, std::int64_t height, std::int64_t width, std::span<float> brightness);

}  // namespace vdnn
