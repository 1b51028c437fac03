#pragma once
// JPEG, through libjpeg-turbo.

#include <cstdint>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// Grey where the file is grey, else RGB (CMYK without a colour profile: ink over white). The orientation that
// a camera notes is not applied. Throws DataError when the data are no JPEG, damaged or truncated: what
// libjpeg only warns of counts.
Image decode_jpeg(std::span<const std::uint8_t> bytes);

}  // namespace vdnn
