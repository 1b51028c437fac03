#include "tests/docs/command_lines.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>

namespace vdnn::testing {

namespace {

// Names of files in pages contain a dot, and names of folders end with a slash; names of programs have
// neither.
bool begins_with_a_program(const std::string& text) {
  static const std::regex program(
      R"((vdnn|mpirun|srun|cmake|ctest|python3|clang-format|clang-tidy|(build/release|scripts|bench)/[\w/-]*\w)( .*)?)");
  return std::regex_match(text, program);
}

// A program's name alone is a command line only if the program is the project's.
bool is_command_line(const std::string& text) {
  const bool with_arguments = text.find(' ') != std::string::npos;
  const bool usage = text.find('[') != std::string::npos;
  return begins_with_a_program(text) && !usage && (with_arguments || text.find('/') != std::string::npos);
}

void add(std::vector<CommandLine>& lines, const std::string& text, int line) {
  const std::string uncommented = std::regex_replace(text, std::regex(R"(\s+#\s.*)"), "");
  std::size_t begin = 0;
  while (begin != std::string::npos) {
    const std::size_t end = uncommented.find(" && ", begin);
    std::string command;
    for (const std::string& word : words_of(uncommented.substr(begin, end - begin))) {
      command += (command.empty() ? "" : " ") + word;
    }
    if (is_command_line(command)) {
      lines.push_back({.text = command, .line = line});
    }
    begin = end == std::string::npos ? end : end + 4;
  }
}

// The lines of one block or paragraph, and the number of the first line.
struct Passage {
  bool block = false;
  int line = 1;
  std::vector<std::string> lines;
};

void add_block(std::vector<CommandLine>& found, const Passage& passage) {
  std::string command;
  for (std::size_t each = 0; each < passage.lines.size(); ++each) {
    command += passage.lines[each];
    if (command.ends_with("\\")) {
      command.pop_back();
      continue;
    }
    add(found, command, passage.line + static_cast<int>(each));
    command.clear();
  }
}

void add_spans(std::vector<CommandLine>& found, const Passage& passage) {
  std::string text;
  for (const std::string& line : passage.lines) {
    text += line + "\n";
  }
  static const std::regex span("`([^`]+)`");
  for (std::sregex_iterator match(text.begin(), text.end(), span), end; match != end; ++match) {
    const auto before = std::count(text.begin(), text.begin() + match->position(), '\n');
    add(found, (*match)[1], passage.line + static_cast<int>(before));
  }
}

std::vector<std::string> split_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<CommandLine> command_lines(const std::vector<Passage>& passages) {
  std::vector<CommandLine> found;
  for (const Passage& passage : passages) {
    passage.block ? add_block(found, passage) : add_spans(found, passage);
  }
  return found;
}

}  // namespace

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<CommandLine> command_lines_of_page(const std::string& text) {
  std::vector<Passage> passages{{}};
  bool fenced = false;
  bool of_a_language = false;
  int number = 0;
  for (const std::string& line : split_lines(text)) {
    ++number;
    const bool fence = line.starts_with("```");
    if (fence) {
      fenced = !fenced;
      of_a_language = fenced && line.size() > 3;
    }
    const bool block = (fenced && !of_a_language) || line.starts_with("    ");
    if (fence || line.empty() || block != passages.back().block) {
      passages.push_back({.block = block, .line = number + (fence ? 1 : 0), .lines = {}});
    }
    if (!fence && !of_a_language) {
      passages.back().lines.push_back(line);
    }
  }
  return command_lines(passages);
}

std::vector<CommandLine> command_lines_of_source(const std::string& text) {
  static const std::regex comment(R"(\s*(//|#|\*)\s?(.*))");
  Passage spans;
  Passage lines{.block = true, .lines = {}};
  for (const std::string& line : split_lines(text)) {
    std::smatch match;
    const bool commented = std::regex_match(line, match, comment);
    spans.lines.push_back(commented ? match[2].str() : "");
    lines.lines.push_back(commented ? match[2].str() : line);
  }
  return command_lines({spans, lines});
}

}  // namespace vdnn::testing
