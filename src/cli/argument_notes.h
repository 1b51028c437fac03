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

// What may have been meant by arguments that are unknown, as lines for people; empty where nothing is near.
std::string unknown_argument_hints(const CLI::App& app);

}  // namespace vdnn
