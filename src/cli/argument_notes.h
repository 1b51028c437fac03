#pragma once
// Notes on arguments that are valid but may not mean what the user expects.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vdnn {

// Notes on a parsed command, one sentence each: sizes like `10M`, and more threads than `cores`.
std::vector<std::string> argument_notes(const CLI::App& command, unsigned int cores);

// Suggestions for unknown arguments, one line each. Empty if no known name is near.
std::string unknown_argument_hints(const CLI::App& app);

}  // namespace vdnn
