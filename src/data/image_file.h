#pragma once
// Image files, and the conversion of images to samples.

#include <cstdint>
#include <filesystem>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// A JPEG or PNG image, told apart by how they begin, with 1 or 3 channels. Throws DataError when it is
// neither, or damaged or truncated.
Image decode_image(std::span<const std::uint8_t> bytes, std::int64_t channels);

// Reads an image file of any name. Throws DataError with the file, also if it cannot be read.
Image read_image_file(const std::filesystem::path& path, std::int64_t channels);

// Cuts the largest centred part of `image` that has the sides' ratio of height x width (in whole pixels) and
// scales it to that size: bilinear between the pixels' centres, which lie at halves, the border repeated; not
// antialiased. `brightness` (height x width x channels, from 0 to 1) is the exact value, rounded once: an
// image that has the size already keeps its pixels.
void crop_and_scale(const Image& image, std::int64_t height, std::int64_t width, std::span<float> brightness);

}  // namespace vdnn
