#pragma once
// Completion of the command line in shells.

#include <string>
#include <vector>

#include "src/cli/command_texts.h"

namespace vdnn {

// The script for "bash", "zsh" or "fish". Throws InvalidArgument for another shell.
std::string completion_script(const std::string& shell, const std::vector<CommandText>& commands);

}  // namespace vdnn
