#pragma once
// Text inside HTML and SVG.

#include <string>
#include <string_view>

namespace vdnn {

// What means something there is written as what it stands for, in texts and in attributes.
std::string escaped(std::string_view text);

}  // namespace vdnn
