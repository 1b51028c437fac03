#include "src/cli/manual.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "src/cli/exit_status.h"
#include "src/cli/joined.h"
#include "src/cli/line_schemas.h"
#include "src/cli/version.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

// A topic of all commands. Texts are plain, since both manuals print them.
struct Topic {
  std::string_view title;
  std::string_view text;
};

constexpr std::array kTopics{
    Topic{"Sizes",
          "512MiB and 12GiB are binary, 12GB is decimal, and a bare number is bytes. Fractions are accepted "
          "if they are whole bytes. 10M and 24G (K, M, G, T) are read as binary, with a note on standard "
          "error."},
    Topic{"Devices",
          "auto is the GPU with the most free memory, or cpu if no GPU can be driven. cpu trains with "
          "oneDNN. cuda:N is a GPU. sim:NAME is a simulated device that the command knows (vdnn devices "
          "lists them), sim:FILE.json one that a file describes (docs/device_profile.schema.json). Simulated "
          "devices predict plans and cannot train."},
    Topic{"Output",
          "Text for people goes to standard output, the log to standard error. An OUTPUT of - is standard "
          "output, and text for people then goes to standard error. --json writes one JSON object per line. "
          "Schemas are in docs/."},
    Topic{"Times",
          "Predicted times come from the device's rates. \"rates\" is \"measured\" if vdnn profile has "
          "measured them, and \"assumed\" if they were published or assumed."}};

// The schemas of the lines that a command writes for --json.
struct Lines {
  std::string_view command;
  std::vector<std::string_view> schemas;
};

const std::vector<Lines>& lines_of_commands() {
  static const std::vector<Lines> lines{{"train", {"step", "replan", "summary"}},
                                        {"plan", {"planning_problem", "summary"}},
                                        {"max-batch", {"batch", "largest_batch", "summary"}},
                                        {"replay", {"summary"}},
                                        {"reproduce", {"reproduction"}},
                                        {"sweep", {"point", "summary"}},
                                        {"explain", {"explanation", "summary"}},
                                        {"devices", {"device"}},
                                        {"models", {"model"}}};
  return lines;
}

bool has_option(const CommandText& command, const std::string& name) {
  return std::ranges::any_of(command.options, [&](const OptionText& option) {
    return std::ranges::find(option.names, name) != option.names.end();
  });
}

// Empty for a command without --json. Throws std::logic_error for a command with --json whose schemas are not
// listed here.
std::vector<std::string_view> schemas_of(const CommandText& command) {
  const auto found = std::ranges::find(lines_of_commands(), command.name, &Lines::command);
  if ((found != lines_of_commands().end()) != has_option(command, "--json")) {
    throw std::logic_error("manual: lines of vdnn " + command.name);
  }
  return found == lines_of_commands().end() ? std::vector<std::string_view>() : found->schemas;
}

// "--output FILE", or the name of an argument.
std::string usage_of(const OptionText& option) {
  const bool positional = !option.names.front().starts_with("-");
  const std::string type = option.type.empty() || positional ? "" : " " + option.type;
  return option.names.front() + type;
}

// vdnn train --model MODEL --data DATA [options]
std::string usage_of(const CommandText& command) {
  std::string text = command.name == "vdnn" ? "vdnn" : "vdnn " + command.name;
  for (const OptionText& option : command.options) {
    text += option.required ? " " + usage_of(option) : "";
  }
  text += " [options]";
  for (const OptionText& argument : command.arguments) {
    const std::string name = argument.names.front() + (argument.repeatable ? "..." : "");
    text += argument.required ? " " + name : " [" + name + "]";
  }
  return text;
}

// The default and the repetition of an option, which follow its help.
std::string remarks_of(const OptionText& option) {
  std::string text;
  if (option.required) {
    text += " (required)";
  }
  if (option.repeatable) {
    text += " (may be repeated)";
  }
  if (!option.default_value.empty()) {
    text += " (default: " + option.default_value + ")";
  }
  return text;
}

// --- keys of JSON ------------------------------------------------------------------------------------------

struct KeyText {
  std::string key;
  std::string type;
  std::string meaning;
};

const Json& resolved(const Json& root, const Json& schema) {
  const auto reference = schema.find("$ref");
  if (reference == schema.end()) {
    return schema;
  }
  return root.at(Json::json_pointer(reference->get<std::string>().substr(1)));
}

std::string type_text(const Json& root, const Json& given) {
  const Json& schema = resolved(root, given);
  std::vector<std::string> types;
  if (schema.contains("const")) {
    return schema["const"].dump();
  }
  if (schema.contains("enum")) {
    for (const Json& value : schema["enum"]) {
      types.push_back(value.dump());
    }
  } else if (schema.contains("oneOf") || schema.contains("anyOf")) {
    for (const Json& choice : schema.contains("oneOf") ? schema["oneOf"] : schema["anyOf"]) {
      types.push_back(type_text(root, choice));
    }
  } else if (schema.contains("type") && schema["type"].is_array()) {
    for (const Json& type : schema["type"]) {
      types.push_back(type.get<std::string>());
    }
  } else {
    types.push_back(schema.value("type", "any"));
  }
  return joined(types, " or ");
}

void add_keys(const Json& root, const Json& object, const std::string& prefix, std::vector<KeyText>& keys) {
  if (!object.contains("properties")) {
    return;
  }
  for (const auto& [name, property] : object["properties"].items()) {
    const Json& schema = resolved(root, property);
    const std::string key = prefix + name;
    const std::string meaning = property.value("description", schema.value("description", ""));
    keys.push_back({.key = key, .type = type_text(root, property), .meaning = meaning});
    add_keys(root, schema, key + ".", keys);
    if (schema.contains("items")) {
      add_keys(root, resolved(root, schema["items"]), key + "[].", keys);
    }
  }
}

// --- Markdown ----------------------------------------------------------------------------------------------

// Escapes text for a cell of a table.
std::string in_cell(const std::string& text) {
  std::string result;
  for (const char each : text) {
    result += each == '|' ? std::string("\\|") : std::string(1, each);
  }
  return result;
}

void write_options(std::ostream& out, const std::vector<OptionText>& options) {
  for (const OptionText& option : options) {
    const std::string type = option.names.front().starts_with("-") ? option.type : "";
    out << "| `" << joined(option.names, "`, `") << "`" << (type.empty() ? "" : " " + type) << " | "
        << in_cell(option.help + remarks_of(option)) << " |\n";
  }
}

void write_command(std::ostream& out, const CommandText& command) {
  out << "\n## " << (command.name == "vdnn" ? "vdnn" : "vdnn " + command.name) << "\n\n"
      << command.help << (command.help.ends_with(".") ? "" : ".") << "\n\nUsage: `" << usage_of(command)
      << "`\n\n| option | meaning |\n|---|---|\n";
  write_options(out, command.arguments);
  write_options(out, command.options);
  const std::vector<std::string_view> schemas = schemas_of(command);
  if (!schemas.empty()) {
    out << "\nJSON lines:";
    for (const std::string_view schema : schemas) {
      out << (schema == schemas.front() ? " " : ", ") << "[" << schema << "](#json-" << schema << ")";
    }
    out << ".\n";
  }
}

void write_keys(std::ostream& out, const Json& root, const Json& object) {
  std::vector<KeyText> keys;
  add_keys(root, object, "", keys);
  out << "\n| key | type | meaning |\n|---|---|---|\n";
  for (const KeyText& key : keys) {
    out << "| `" << key.key << "` | " << in_cell(key.type) << " | " << in_cell(key.meaning) << " |\n";
  }
}

void write_schema(std::ostream& out, const LineSchema& schema) {
  const Json root = Json::parse(schema.text);
  out << "\n### JSON: " << schema.name << "\n\n"
      << root.at("description").get<std::string>() << " [Schema](" << schema.name << ".schema.json).\n";
  if (root.contains("properties")) {
    write_keys(out, root, root);
    return;
  }
  for (const Json& choice : root.at("oneOf")) {
    const Json& object = resolved(root, choice);
    const std::string type = type_text(root, object.at("properties").at("type"));
    out << "\nA line of the type " << type << ":\n";
    write_keys(out, root, object);
  }
}

// --- man(7) ------------------------------------------------------------------------------------------------

// Escapes a line of text: backslashes and leading requests become literal, and dashes become ASCII hyphens.
std::string roff(const std::string& text) {
  std::string result = text.starts_with(".") || text.starts_with("'") ? "\\&" : "";
  for (const char each : text) {
    if (each == '\\') {
      result += "\\e";
    } else if (each == '-') {
      result += "\\-";
    } else {
      result += each;
    }
  }
  return result;
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}

void write_man_option(std::ostream& out, const OptionText& option) {
  const bool positional = !option.names.front().starts_with("-");
  out << ".TP\n";
  for (const std::string& name : option.names) {
    out << (name == option.names.front() ? "" : ", ") << bold(name);
  }
  out << (option.type.empty() || positional ? "" : " \\fI" + roff(option.type) + "\\fR") << "\n"
      << roff(option.help + remarks_of(option)) << "\n";
}

std::string page_name(const CommandText& command) {
  return command.name == "vdnn" ? "vdnn" : "vdnn-" + command.name;
}

std::string in_capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return text;
}

ManPage man_page(const CommandText& command, std::span<const CommandText> subcommands) {
  std::ostringstream out;
  out << ".TH " << in_capitals(page_name(command)) << " 1 \"\" \"vdnn " << version() << "\" \"vdnn manual\"\n"
      << ".SH NAME\n"
      << roff(page_name(command)) << " \\- " << roff(command.help) << "\n.SH SYNOPSIS\n"
      << bold(usage_of(command)) << "\n";
  if (!subcommands.empty()) {
    out << ".SH COMMANDS\n";
    for (const CommandText& each : subcommands) {
      out << ".TP\n" << bold(page_name(each)) << "(1)\n" << roff(each.help) << "\n";
    }
  }
  out << ".SH OPTIONS\n";
  for (const auto* options : {&command.arguments, &command.options}) {
    for (const OptionText& option : *options) {
      write_man_option(out, option);
    }
  }
  for (const Topic& topic : kTopics) {
    out << ".SH " << in_capitals(std::string(topic.title)) << "\n" << roff(std::string(topic.text)) << "\n";
  }
  out << ".SH EXIT STATUS\n";
  for (const ExitStatus& each : exit_statuses()) {
    out << ".TP\n" << bold(std::to_string(each.status)) << "\n" << roff(std::string(each.meaning)) << "\n";
  }
  out << ".SH SEE ALSO\n"
      << (subcommands.empty() ? "\\fBvdnn\\fR(1), " : "")
      << "docs/cli.md, which also lists the keys of JSON\n";
  return {.file = page_name(command) + ".1", .text = out.str()};
}

}  // namespace

std::string markdown_manual(const std::vector<CommandText>& commands) {
  std::ostringstream out;
  out << "# The vdnn command\n\n"
         "Written by `vdnn manual --markdown` from the command's own options; a test compares this "
         "page with its output.\n";
  for (const Topic& topic : kTopics) {
    out << "\n**" << topic.title << ".** " << topic.text << "\n";
  }
  for (const CommandText& command : commands) {
    write_command(out, command);
  }
  out << "\n## Exit status\n\n| status | meaning |\n|---|---|\n";
  for (const ExitStatus& each : exit_statuses()) {
    out << "| " << each.status << " | " << each.meaning << " |\n";
  }
  out << "\n## Keys of JSON\n\n`key[].part` is a part of each element of an array.\n";
  for (const LineSchema& schema : line_schemas()) {
    write_schema(out, schema);
  }
  return out.str();
}

std::vector<ManPage> man_pages(const std::vector<CommandText>& commands) {
  std::vector<ManPage> pages;
  for (const CommandText& command : commands) {
    const bool application = &command == commands.data();
    pages.push_back(
        man_page(command, application ? std::span(commands).subspan(1) : std::span<const CommandText>()));
  }
  return pages;
}

}  // namespace vdnn
