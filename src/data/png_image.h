#pragma once
// Decodes PNG with libpng.

#include <cstdint>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// Decodes any PNG to 8 bits per channel: grey if the file is grey, otherwise RGB. Palettes are expanded, and
// 16 bits are scaled to 8 and rounded. Transparency, gamma and colour profiles are ignored. Throws DataError
// if the data are not a PNG, or are damaged or truncated.
Image decode_png(std::span<const std::uint8_t> bytes);

}  // namespace vdnn
