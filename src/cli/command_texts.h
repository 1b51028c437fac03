#pragma once
// Texts of the application's commands and options. The manual and the shells' completions are written from
// them.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vdnn {

struct OptionText {
  std::vector<std::string> names;  // "--output", "-o"; of a positional argument its name
  std::string type;                // of its value (option_types.h); empty: a flag
  std::string help;
  std::string default_value;  // empty: there is none, or the help says it
  bool required = false;
  bool repeatable = false;
};

struct CommandText {
  std::string name;  // "train"; of the application itself "vdnn"
  std::string help;
  std::vector<OptionText> options;
  std::vector<OptionText> arguments;  // positional
};

// The application itself first, then its commands in their order. Once options have their types.
std::vector<CommandText> command_texts(const CLI::App& app);

}  // namespace vdnn
