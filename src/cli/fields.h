#pragma once
// Arguments as structs that name each of their fields once: `T::visit(arguments, field)` calls field(name,
// value, help) for every field, in order. Both the options of the command line (`--name`) and the keys of
// JSON (`name`, with _ for -) come from visit(), so that neither lacks a field.
//
// Types of fields: text, whole numbers, real numbers and flags; `std::optional` of these if an absent option
// differs from every value (null in JSON).

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "vdnn/error.h"

namespace vdnn {

template <class T>
struct OptionalValue {
  using type = T;
  static constexpr bool optional = false;
};
template <class T>
struct OptionalValue<std::optional<T>> {
  using type = T;
  static constexpr bool optional = true;
};

// --- options -----------------------------------------------------------------------------------------------

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

// --- JSON --------------------------------------------------------------------------------------------------

inline std::string json_key(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

template <class Value>
nlohmann::ordered_json value_or_null(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

template <class Arguments>
nlohmann::ordered_json to_json(const Arguments& arguments) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  Arguments::visit(arguments,
                   [&json]<class Value>(const char* name, const Value& value, const auto& /*help*/) {
                     if constexpr (OptionalValue<Value>::optional) {
                       json[json_key(name)] = value_or_null(value);
                     } else {
                       json[json_key(name)] = value;
                     }
                   });
  return json;
}

template <class Type>
bool holds(const nlohmann::json& json) {
  if constexpr (std::is_same_v<Type, bool>) {
    return json.is_boolean();
  } else if constexpr (std::is_same_v<Type, std::string>) {
    return json.is_string();
  } else if constexpr (std::is_floating_point_v<Type>) {
    return json.is_number();
  } else {
    return json.is_number_unsigned()
               ? std::in_range<Type>(json.get<std::uint64_t>())
               : json.is_number_integer() && std::in_range<Type>(json.get<std::int64_t>());
  }
}

// The arguments that to_json() wrote. Throws DataError for an unknown key, a value of another type, or a
// missing key. Keys of Arguments::kLaterOptions may be missing and then have their defaults.
template <class Arguments>
Arguments from_json(const nlohmann::json& json) {
  Arguments arguments;
  std::set<std::string> keys;
  Arguments::visit(arguments, [&]<class Value>(const char* name, Value& value, const auto& /*help*/) {
    using Type = typename OptionalValue<Value>::type;
    const std::string key = json_key(name);
    keys.insert(key);
    if (!json.contains(key)) {
      if (std::ranges::find(Arguments::kLaterOptions, name) != Arguments::kLaterOptions.end()) {
        return;
      }
      throw DataError("'" + key + "' is missing");
    }
    const nlohmann::json& member = json[key];
    if (OptionalValue<Value>::optional && member.is_null()) {
      return;
    }
    if (!holds<Type>(member)) {
      throw DataError("'" + key + "' cannot be " + member.dump());
    }
    value = member.get<Type>();
  });
  for (const auto& [key, member] : json.items()) {
    if (!keys.contains(key)) {
      throw DataError("'" + key + "' is unknown");
    }
  }
  return arguments;
}

// --- command lines -----------------------------------------------------------------------------------------

// Quotes a text for a shell.
inline std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string result = "'";
  for (const char each : text) {
    result += each == '\'' ? std::string("'\\''") : std::string(1, each);
  }
  return result + "'";
}

template <class Type>
std::string as_word(const Type& value) {
  if constexpr (std::is_same_v<Type, std::string>) {
    return quoted(value);
  } else {
    std::array<char, 64> digits{};
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
  }
}

// The options by which `arguments` differ from the defaults: " --model vgg16 --batch 32".
template <class Arguments>
std::string to_command_line(const Arguments& arguments) {
  const auto defaults = to_json(Arguments());
  std::string line;
  Arguments::visit(arguments, [&]<class Value>(const char* name, const Value& value, const auto& /*help*/) {
    using Type = typename OptionalValue<Value>::type;
    nlohmann::ordered_json mine;
    if constexpr (OptionalValue<Value>::optional) {
      mine = value_or_null(value);
    } else {
      mine = value;
    }
    if (mine == defaults.at(json_key(name))) {
      return;
    }
    line += " --" + std::string(name);
    if constexpr (!std::is_same_v<Type, bool>) {
      line += " " + as_word(mine.template get<Type>());
    }
  });
  return line;
}

}  // namespace vdnn
