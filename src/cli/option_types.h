#pragma once
// Types of values that users type: what an option's value means, known by the option's name, which means the
// same in every command. --help prints the type, completion offers its values, and warnings about values go
// by it.

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace vdnn {

inline constexpr std::string_view kSizeType = "SIZE";
inline constexpr std::string_view kFileType = "FILE";      // is read, or replaced by a later state
inline constexpr std::string_view kOutputType = "OUTPUT";  // is written; `-` is standard output

// Gives the options and positional arguments of all commands their types. An `-` for an output becomes
// /dev/stdout.
void set_option_types(CLI::App& app);

// Of an option that has been given its type, without what validators add. Empty for a flag.
std::string type_of(const CLI::Option& option);

// The values that there are of a type, in the order in which people should see them. Empty where they cannot
// be listed.
std::vector<std::string> values_of_type(std::string_view type);

}  // namespace vdnn
