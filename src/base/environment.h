#pragma once
// The process's environment. No other code reads it.

#include <optional>
#include <string>

namespace vdnn {

// The variable's value; absent if it is not set. Must not run beside a thread that changes the environment.
std::optional<std::string> environment(const char* name);

}  // namespace vdnn
