#pragma once
// What was built, and with what.

#include <string>
#include <string_view>

namespace vdnn {

// CMake's, of the project: "0.1.0".
std::string_view version();

// For people: version and commit in the first line, then one line for each library that it was built with.
std::string version_text();

}  // namespace vdnn
