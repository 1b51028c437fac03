#pragma once
// Arguments that are valid, and may not mean what their writer thinks.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vdnn {

// Of a command that has been parsed, one sentence each: sizes such as `10M`, and more threads than `cores`.
std::vector<std::string> argument_notes(const CLI::App& command, unsigned int cores);

// Suggestions for unknown arguments, one line each. Empty if no known name is near.
std::string unknown_argument_hints(const CLI::App& app);

}  // namespace vdnn
