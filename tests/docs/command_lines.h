#pragma once
// Finds the command lines that pages show.

#include <string>
#include <vector>

namespace vdnn::testing {

struct CommandLine {
  std::string text;  // one command, without comments, with single spaces
  int line = 0;      // in the page, from 1
};

// The command lines of a Markdown page: in blocks without a language, in lines indented by four spaces, and
// in code spans. A command line begins with a program that the project has or requires.
std::vector<CommandLine> command_lines_of_page(const std::string& text);

// The command lines in comments of a source, a script or a program's help: in backticks, or on lines of their
// own.
std::vector<CommandLine> command_lines_of_source(const std::string& text);

std::vector<std::string> words_of(const std::string& text);

}  // namespace vdnn::testing
