#include "src/base/environment.h"

#include <cstdlib>

namespace vdnn {

std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace vdnn
