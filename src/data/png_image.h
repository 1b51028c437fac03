#pragma once
// PNG, through libpng.

#include <cstdint>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// Every kind of PNG as 8 bits, grey where the file is grey, else RGB: palettes are looked up, 16 bits scaled
// to 8 and rounded, transparency is dropped, gamma and colour profiles are left alone. Throws DataError when
// the data are no PNG, damaged or truncated.
Image decode_png(std::span<const std::uint8_t> bytes);

}  // namespace vdnn
