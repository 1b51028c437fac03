#pragma once
// Types of option values. An option's name determines its type, since it means the same in every command.
// --help prints the type, completion offers its values, and notes on arguments depend on it.

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace vdnn {

inline constexpr std::string_view kSizeType = "SIZE";
inline constexpr std::string_view kFileType = "FILE";      // read, or replaced by newer contents
inline constexpr std::string_view kOutputType = "OUTPUT";  // written; `-` is standard output

// Sets the types of all options and positional arguments of all commands. The value `-` of an output becomes
// /dev/stdout.
void set_option_types(CLI::App& app);

// The type of an option after set_option_types(), without texts of validators. Empty for a flag.
std::string type_of(const CLI::Option& option);

// All values of a type, in the order for people. Empty if they cannot be listed.
std::vector<std::string> values_of_type(std::string_view type);

}  // namespace vdnn
