#pragma once
// Decodes JPEG with libjpeg-turbo.

#include <cstdint>
#include <span>

#include "src/data/image.h"

namespace vdnn {

// Returns grey if the file is grey, otherwise RGB. CMYK is converted without a colour profile, as ink over
// white. A camera's orientation tag is ignored. Throws DataError if the data are not a JPEG, or are damaged
// or truncated, even if libjpeg only warns of the damage.
Image decode_jpeg(std::span<const std::uint8_t> bytes);

}  // namespace vdnn
