#include "src/cli/command_texts.h"

#include <CLI/CLI.hpp>

#include "src/cli/option_types.h"

namespace vdnn {

namespace {

std::vector<std::string> names_of(const CLI::Option& option) {
  if (option.get_positional()) {
    return {option.get_name(true)};
  }
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  return names;
}

OptionText text_of(const CLI::Option& option) {
  const std::string type = type_of(option);
  return {.names = names_of(option),
          .type = type,
          .help = option.get_description(),
          .default_value = type.empty() ? "" : option.get_default_str(),
          .required = option.get_required(),
          .repeatable = option.get_items_expected_max() > 1};
}

CommandText text_of(const CLI::App& app) {
  CommandText text{.name = app.get_name(), .help = app.get_description(), .options = {}, .arguments = {}};
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? text.arguments : text.options).push_back(text_of(*option));
  }
  return text;
}

}  // namespace

std::vector<CommandText> command_texts(const CLI::App& app) {
  std::vector<CommandText> texts{text_of(app)};
  for (const CLI::App* command : app.get_subcommands({})) {
    texts.push_back(text_of(*command));
  }
  return texts;
}

}  // namespace vdnn
