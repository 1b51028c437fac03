#pragma once
// Image files, and the conversion of images to samples.

#include <cstdint>
#include <filesystem>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// Decodes a JPEG or PNG image to 1 or 3 channels; the first bytes tell which format it is. Throws DataError
// if the data are of neither format, damaged or truncated.
Image decode_image(std::span<const std::uint8_t> bytes, std::int64_t channels);

// Reads and decodes an image file of any name. Throws as decode_image() does, also if the file cannot be
// read; the error names the file.
Image read_image_file(const std::filesystem::path& path, std::int64_t channels);

// Crops `image` to its largest centred part with the aspect ratio of height x width (in whole pixels) and
// scales it to that size. Interpolation is bilinear between pixel centres (at half-integers), repeats the
// border and is not antialiased. `brightness` (height x width x channels, from 0 to 1) is the exact value,
// rounded once, so an image of the right size keeps its pixels.
void crop_and_scale(const Image& image, std::int64_t height, std::int64_t width, std::span<float> brightness);

}  // namespace vdnn
