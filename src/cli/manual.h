#pragma once
// The manual, written from the texts of commands and options, the exit statuses and the schemas of JSON
// lines.

#include <string>
#include <vector>

#include "src/cli/command_texts.h"

namespace vdnn {

// docs/cli.md: every command with its options, every key of JSON lines, every exit status.
std::string markdown_manual(const std::vector<CommandText>& commands);

struct ManPage {
  std::string file;  // "vdnn-train.1"
  std::string text;  // for man(7)
};
// One page for the application, which comes first, and one for each command.
std::vector<ManPage> man_pages(const std::vector<CommandText>& commands);

}  // namespace vdnn
