#include "src/cli/argument_notes.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <string_view>

#include "src/base/near_names.h"
#include "src/cli/option_types.h"

namespace vdnn {

namespace {

// True for "10M", false for "10MiB" and "10MB".
bool has_a_bare_unit(std::string_view size) {
  return !size.empty() && std::string_view("KMGT").find(size.back()) != std::string_view::npos;
}

void note_size(const std::string& option, const std::string& size, std::vector<std::string>& notes) {
  if (has_a_bare_unit(size)) {
    notes.push_back(option + " " + size + " is binary: " + size + "iB; decimal is " + size + "B");
  }
}

bool is_simulated(const CLI::App& command) {
  const CLI::Option* device = command.get_option_no_throw("--device");
  return device != nullptr && device->count() > 0 && device->results().back().starts_with("sim:");
}

void note_threads(const CLI::Option& option, unsigned int cores, std::vector<std::string>& notes) {
  const std::string& text = option.results().back();
  unsigned int threads = 0;
  std::from_chars(text.data(), text.data() + text.size(), threads);
  if (cores > 0 && threads > cores) {
    notes.push_back("--threads " + text + ": this machine has " + std::to_string(cores) +
                    " cores; more threads than cores make steps slower");
  }
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string hint(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = did_you_mean(word, names);
  return near.empty() ? "" : word + near + "\n";
}

}  // namespace

std::vector<std::string> argument_notes(const CLI::App& command, unsigned int cores) {
  std::vector<std::string> notes;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) {
      continue;
    }
    if (type_of(*option) == kSizeType) {
      note_size(option->get_name(), option->results().back(), notes);
    }
    if (option->check_lname("threads") && !is_simulated(command)) {
      note_threads(*option, cores, notes);
    }
  }
  return notes;
}

std::string unknown_argument_hints(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty()) {
    const std::vector<std::string> words = app.remaining();
    if (words.empty()) {
      return "";
    }
    const bool option = words.front().starts_with("-");
    return hint(words.front(), option ? option_names(app) : command_names(app));
  }
  std::string hints;
  for (const std::string& word : chosen.front()->remaining()) {
    if (word.starts_with("--")) {
      hints += hint(word.substr(0, word.find('=')), option_names(*chosen.front()));
    }
  }
  return hints;
}

}  // namespace vdnn
