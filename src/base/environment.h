#pragma once
// The process's environment. No other code reads it.

#include <optional>
#include <string>

namespace vdnn {

// The variable's value; absent if it is not set. Do not call it while another thread changes the environment.
std::optional<std::string> environment(const char* name);

}  // namespace vdnn
