#pragma once
// The arguments of fields.h as JSON, and as the options of a command line that differ from the defaults.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "src/cli/fields.h"
#include "vdnn/error.h"

namespace vdnn {

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
