#include "src/cli/completion.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "src/base/near_names.h"
#include "src/cli/joined.h"
#include "src/cli/option_types.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

bool names_files(const std::string& type) {
  return type == kFileType || type == kOutputType || type == "FOLDER";
}

// False for values that are neither files nor known. For these, shells offer nothing; by default they would
// offer files.
bool can_be_completed(const std::string& type) {
  return names_files(type) || !values_of_type(type).empty();
}

// The types of all options and arguments that can be completed.
std::set<std::string> types_of(const std::vector<CommandText>& commands) {
  std::set<std::string> types;
  for (const CommandText& command : commands) {
    for (const auto* options : {&command.options, &command.arguments}) {
      for (const OptionText& option : *options) {
        if (can_be_completed(option.type)) {
          types.insert(option.type);
        }
      }
    }
  }
  return types;
}

std::span<const CommandText> subcommands(const std::vector<CommandText>& commands) {
  return std::span(commands).subspan(1);
}

std::vector<std::string> names_of(std::span<const CommandText> commands) {
  std::vector<std::string> names;
  std::ranges::transform(commands, std::back_inserter(names), &CommandText::name);
  return names;
}

// Puts the text in single quotes, which all three shells understand.
std::string in_quotes(const std::string& text) {
  std::string result = "'";
  for (const char each : text) {
    result += each == '\'' ? std::string("'\\''") : std::string(1, each);
  }
  return result + "'";
}

// --- bash --------------------------------------------------------------------------------------------------

// Writes the words that bash offers for the command, and the type of value that follows each option.
void write_bash_command(std::ostream& out, const CommandText& command, const std::string& pattern) {
  std::vector<std::string> words;
  std::map<std::string, std::vector<std::string>> options_of_type;
  for (const OptionText& option : command.options) {
    words.insert(words.end(), option.names.begin(), option.names.end());
    if (!option.type.empty()) {
      std::vector<std::string>& options = options_of_type[option.type];
      options.insert(options.end(), option.names.begin(), option.names.end());
    }
  }
  out << "    " << pattern << ")\n      offered='" << joined(words, " ") << "'\n";
  if (!command.arguments.empty()) {
    out << "      argument=" << command.arguments.front().type << "\n";
  }
  if (!options_of_type.empty()) {
    out << "      case $previous in\n";
    for (const auto& [type, options] : options_of_type) {
      out << "        " << joined(options, "|") << ") type=" << type << " ;;\n";
    }
    out << "      esac\n";
  }
  out << "      ;;\n";
}

// Bash splits words at colons and equal signs, and replaces only the part after the last of them. So the
// function reads the line itself.
constexpr const char* kBashBegin = R"(# bash completion for vdnn, written by `vdnn completion bash`
_vdnn() {
  local line=${COMP_LINE:0:COMP_POINT} word words current='' previous command='' offered='' type='' argument=''
  COMPREPLY=()
  read -ra words <<<"$line"
  if [[ $line != *[[:space:]] ]]; then
    current=${words[-1]}
    unset 'words[-1]'
  fi
  previous=${words[-1]}
  if [[ $current == --*=* ]]; then
    previous=${current%%=*}
    current=${current#*=}
  fi
  for word in "${words[@]:1}"; do
    if [[ $word == -- ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
    if [[ -z $command && $word != -* ]]; then
      command=$word
    fi
  done
  case $command in
)";

constexpr const char* kBashEnd = R"(    FILE|OUTPUT|FOLDER)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    ?*) return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$current")
  if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${current%:*}":}")
  fi
}
complete -F _vdnn vdnn
)";

std::string bash_script(const std::vector<CommandText>& commands) {
  std::ostringstream out;
  out << kBashBegin;
  CommandText application = commands.front();
  for (const std::string& name : names_of(subcommands(commands))) {
    application.options.push_back({.names = {name}, .type = "", .help = "", .default_value = ""});
  }
  write_bash_command(out, application, "''");
  for (const CommandText& command : subcommands(commands)) {
    write_bash_command(out, command, command.name);
  }
  out << "  esac\n"
         "  if [[ -z $type && $current != -* ]]; then\n"
         "    type=$argument\n"
         "  fi\n"
         "  case $type in\n"
         "    '') ;;\n";
  for (const std::string& type : types_of(commands)) {
    if (!names_files(type)) {
      out << "    " << type << ") offered='" << joined(values_of_type(type), " ") << "' ;;\n";
    }
  }
  out << kBashEnd;
  return out.str();
}

// --- zsh ---------------------------------------------------------------------------------------------------

// Escapes a help text inside the brackets of a specification of _arguments.
std::string zsh_help(const std::string& help) {
  std::string text;
  for (const char each : help) {
    if (each == '[' || each == ']' || each == ':' || each == '\\') {
      text += '\\';
    }
    text += each;
  }
  return text;
}

std::string zsh_action(const std::string& type) {
  return names_files(type) ? "_files" : can_be_completed(type) ? "_vdnn_" + type : " ";
}

std::string zsh_specification(const OptionText& option) {
  std::string rest = "[" + zsh_help(option.help) + "]";
  if (!option.type.empty()) {
    rest += ":" + option.type + ":" + zsh_action(option.type);
  }
  const std::string often = option.repeatable ? "*" : "";
  std::string lines;
  for (const std::string& name : option.names) {
    lines += " \\\n        " + in_quotes(std::string(often).append(name).append(rest));
  }
  return lines;
}

void write_zsh_command(std::ostream& out, const CommandText& command) {
  out << "    " << command.name << ")\n      _arguments";
  for (const OptionText& option : command.options) {
    out << zsh_specification(option);
  }
  for (const OptionText& argument : command.arguments) {
    out << " \\\n        "
        << in_quotes((argument.repeatable ? "*:" : ":") + argument.names.front() + ":" +
                     (argument.repeatable ? "_normal" : zsh_action(argument.type)));
  }
  out << "\n      ;;\n";
}

std::string zsh_script(const std::vector<CommandText>& commands) {
  std::ostringstream out;
  out << "#compdef vdnn\n# zsh completion for vdnn, written by `vdnn completion zsh`\n";
  for (const std::string& type : types_of(commands)) {
    if (!names_files(type)) {
      out << "_vdnn_" << type << "() {\n  local -a values=(" << joined(values_of_type(type), " ")
          << ")\n  compadd -a values\n}\n";
    }
  }
  out << "_vdnn() {\n  local state line\n  local -a commands=(\n";
  for (const CommandText& command : subcommands(commands)) {
    out << "    " << in_quotes(command.name + ":" + command.help) << "\n";
  }
  out << "  )\n  _arguments -C";
  for (const OptionText& option : commands.front().options) {
    out << zsh_specification(option);
  }
  out << " \\\n        ':command:->command' '*::argument:->argument'\n"
         "  if [[ $state == command ]]; then\n    _describe command commands\n    return\n  fi\n"
         "  case $words[1] in\n";
  for (const CommandText& command : subcommands(commands)) {
    write_zsh_command(out, command);
  }
  out << "  esac\n}\n_vdnn \"$@\"\n";
  return out.str();
}

// --- fish --------------------------------------------------------------------------------------------------

std::string fish_value(const std::string& type) {
  if (type.empty()) {
    return "";
  }
  return names_files(type) ? " -r -F" : " -x -a " + in_quotes(joined(values_of_type(type), " "));
}

// "--output" is -l output, "-o" is -s o.
std::string fish_names(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return text;
}

void write_fish_command(std::ostream& out, const CommandText& command, const std::string& condition) {
  const std::string line = "complete -c vdnn -n '" + condition + "'";
  for (const OptionText& option : command.options) {
    out << line << fish_names(option) << fish_value(option.type) << " -d " << in_quotes(option.help) << "\n";
  }
  for (const OptionText& argument : command.arguments) {
    const bool files = argument.repeatable || names_files(argument.type);
    out << line << (files ? " -F" : " -a " + in_quotes(joined(values_of_type(argument.type), " "))) << " -d "
        << in_quotes(argument.help) << "\n";
  }
}

std::string fish_script(const std::vector<CommandText>& commands) {
  std::ostringstream out;
  out << "# fish completion for vdnn, written by `vdnn completion fish`\ncomplete -c vdnn -f\n";
  write_fish_command(out, commands.front(), "__fish_use_subcommand");
  for (const CommandText& command : subcommands(commands)) {
    out << "complete -c vdnn -n __fish_use_subcommand -a " << command.name << " -d "
        << in_quotes(command.help) << "\n";
    write_fish_command(out, command, "__fish_seen_subcommand_from " + command.name);
  }
  return out.str();
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandText>& commands) {
  if (shell == "bash") {
    return bash_script(commands);
  }
  if (shell == "zsh") {
    return zsh_script(commands);
  }
  if (shell == "fish") {
    return fish_script(commands);
  }
  throw InvalidArgument("no completion for '" + shell + "'" + did_you_mean(shell, values_of_type("SHELL")) +
                        "; completions exist for " + joined(values_of_type("SHELL"), ", "));
}

}  // namespace vdnn
