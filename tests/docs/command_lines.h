#pragma once
// Command lines as pages show them.

#include <string>
#include <vector>

namespace vdnn::testing {

struct CommandLine {
  std::string text;  // one command, without comments, with single spaces
  int line = 0;      // of the page, from 1
};

// Those of a page of Markdown: in blocks of no language, in lines that are indented by four spaces, and in
// code spans. A command line begins with a program that the project has or asks for.
std::vector<CommandLine> command_lines_of_page(const std::string& text);

// Those in comments of a source, a script or a program's help: spans in backticks, and lines of their own.
std::vector<CommandLine> command_lines_of_source(const std::string& text);

std::vector<std::string> words_of(const std::string& text);

}  // namespace vdnn::testing
