#pragma once
// Adds the arguments of fields.h to a command as options.

#include <CLI/CLI.hpp>
#include <charconv>
#include <concepts>
#include <initializer_list>
#include <string>
#include <system_error>
#include <type_traits>

#include "src/cli/fields.h"

namespace vdnn {

// An empty text usually comes from an unset shell variable.
inline std::string require_text(const std::string& text) {
  return text.empty() ? "must not be empty" : "";
}

// CLI11 would read 010 as 8 and 0x10 as 16, and replace a number that overflows by the largest one.
template <std::integral Integer>
std::string require_decimal(std::string& text) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return "'" + text + "' overflows";
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return "'" + text + "' is not a whole number" + (std::is_unsigned_v<Integer> ? " from 0 up" : "");
  }
  text = std::to_string(value);
  return "";
}

// Adds `--name` for `value`.
template <class Value>
CLI::Option* add_option(CLI::App& app, const std::string& name, Value& value, const std::string& help) {
  using Type = typename OptionalValue<Value>::type;
  if constexpr (std::is_same_v<Type, bool>) {
    return app.add_flag("--" + name, value, help);
  } else {
    CLI::Option* option = app.add_option("--" + name, value, help);
    if constexpr (std::is_same_v<Type, std::string>) {
      option->check(require_text);
    } else if constexpr (std::is_integral_v<Type>) {
      option->transform(CLI::Validator(require_decimal<Type>, ""));
    }
    if constexpr (!OptionalValue<Value>::optional) {
      option->capture_default_str();
    }
    return option;
  }
}

// Adds an option for each field.
template <class Arguments>
void add_options(CLI::App& app, Arguments& arguments) {
  Arguments::visit(arguments, [&app](const char* name, auto& value, const std::string& help) {
    add_option(app, name, value, help);
  });
}

// Removes options that a command does not use, so that giving one is an error.
inline void remove_options(CLI::App& app, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    app.remove_option(app.get_option(std::string("--") + name));
  }
}

}  // namespace vdnn
