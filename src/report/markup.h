#pragma once
// Text for HTML and SVG.

#include <string>
#include <string_view>

namespace vdnn {

// Escapes characters that have a meaning in texts or attributes of HTML and SVG.
std::string escaped(std::string_view text);

}  // namespace vdnn
