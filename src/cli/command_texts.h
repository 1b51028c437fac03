#pragma once
// Texts of the application's commands and options, from which the manual and completion scripts are written.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vdnn {

struct OptionText {
  std::vector<std::string> names;  // "--output", "-o"; for a positional argument its name
  std::string type;                // the value's type (option_types.h); empty: a flag
  std::string help;
  std::string default_value;  // empty: there is none, or the help names it
  bool required = false;
  bool repeatable = false;
};

struct CommandText {
  std::string name;  // "train"; "vdnn" for the application itself
  std::string help;
  std::vector<OptionText> options;
  std::vector<OptionText> arguments;  // positional
};

// The application itself first, then its commands in order. Call once options have their types.
std::vector<CommandText> command_texts(const CLI::App& app);

}  // namespace vdnn
