#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "src/cli/commands.h"
#include "src/cli/completion.h"

namespace vdnn {

Command add_completion_command(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script with which a shell completes command lines of vdnn");
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  return [&app, shell] { std::cout << completion_script(*shell, command_texts(app)); };
}

}  // namespace vdnn
