#pragma once
// The process's environment: the one place that reads it.

#include <optional>
#include <string>

namespace vdnn {

// Nothing where there is no such variable. Not beside a thread that changes the environment.
std::optional<std::string> environment(const char* name);

}  // namespace vdnn
