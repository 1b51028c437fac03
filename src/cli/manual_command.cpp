#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "src/cli/commands.h"
#include "src/cli/manual.h"
#include "src/cli/option_fields.h"
#include "src/cli/output.h"

namespace vdnn {

namespace {

struct ManualArguments {
  bool markdown = false;
  std::optional<std::string> man;
};

void write_manual(const CLI::App& app, const ManualArguments& arguments) {
  if (arguments.markdown == arguments.man.has_value()) {
    throw InvalidArgument("--markdown and --man: give one of them");
  }
  const std::vector<CommandText> commands = command_texts(app);
  if (arguments.markdown) {
    std::cout << markdown_manual(commands);
    return;
  }
  if (!std::filesystem::is_directory(*arguments.man)) {
    throw InvalidArgument("--man " + *arguments.man + ": no such folder");
  }
  for (const ManPage& page : man_pages(commands)) {
    replace_file((std::filesystem::path(*arguments.man) / page.file).string(), page.text);
  }
}

}  // namespace

Command add_manual_command(CLI::App& app) {
  const auto arguments = std::make_shared<ManualArguments>();
  CLI::App* command = app.add_subcommand("manual", "Write the manual of vdnn");
  add_option(*command, "markdown", arguments->markdown,
             "print the whole manual as one page of Markdown: docs/cli.md");
  add_option(*command, "man", arguments->man, "write man pages, one for each command, into this folder");
  return [&app, arguments] { write_manual(app, *arguments); };
}

}  // namespace vdnn
