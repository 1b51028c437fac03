#pragma once
// The versions of the project and of its libraries.

#include <string>
#include <string_view>

namespace vdnn {

// The project's version from CMake, for example "1.2.3".
std::string_view version();

// For people: version and commit in the first line, then one line for each library that it was built with.
std::string version_text();

}  // namespace vdnn
