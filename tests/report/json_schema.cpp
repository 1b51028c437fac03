#include "tests/report/json_schema.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace vdnn::testing {

namespace {

class Visit {
 public:
  // `schema` is a part of `root`, to which its references point.
  static std::vector<std::string> errors(const Json& root, const Json& schema, const Json& value) {
    Visit check(root);
    check.visit(schema, value, "");
    return check.errors_;
  }

 private:
  explicit Visit(const Json& root) : root_(root) {}

  void fail(const std::string& where, const std::string& what) {
    errors_.push_back((where.empty() ? "/" : where) + ": " + what);
  }

  static std::string inside(std::string where, const std::string& key) {
    return where.append("/").append(key);
  }

  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "number") return value.is_number();
    if (type == "integer") return value.is_number_integer();
    throw std::invalid_argument("schema: unknown type '" + type + "'");
  }

  void visit(const Json& schema, const Json& value, const std::string& where) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) {
        fail(where, "must not be there");
      }
      return;
    }
    for (const auto& [keyword, argument] : schema.items()) {
      apply(schema, keyword, argument, value, where);
    }
  }

  void apply(const Json& schema, const std::string& keyword, const Json& argument, const Json& value,
             const std::string& where) {
    if (keyword == "type") {
      const Json types = argument.is_array() ? argument : Json::array({argument});
      if (std::ranges::none_of(types, [&](const Json& type) { return has_type(value, type); })) {
        fail(where, "expected " + argument.dump() + ", found " + value.dump());
      }
    } else if (keyword == "const") {
      if (value != argument) {
        fail(where, "expected " + argument.dump() + ", found " + value.dump());
      }
    } else if (keyword == "enum") {
      if (std::ranges::find(argument, value) == argument.end()) {
        fail(where, "expected one of " + argument.dump() + ", found " + value.dump());
      }
    } else if (keyword == "minimum") {
      if (value.is_number() && value < argument) {
        fail(where, "expected at least " + argument.dump() + ", found " + value.dump());
      }
    } else if (keyword == "minItems") {
      if (value.is_array() && value.size() < argument.get<std::size_t>()) {
        fail(where, "expected at least " + argument.dump() + " items, found " + std::to_string(value.size()));
      }
    } else if (keyword == "required") {
      for (const Json& key : argument) {
        if (value.is_object() && !value.contains(key.get<std::string>())) {
          fail(where, "'" + key.get<std::string>() + "' is missing");
        }
      }
    } else if (keyword == "properties") {
      for (const auto& [key, property] : argument.items()) {
        if (value.is_object() && value.contains(key)) {
          visit(property, value[key], inside(where, key));
        }
      }
    } else if (keyword == "additionalProperties") {
      visit_additional(schema, argument, value, where);
    } else if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        visit(argument, value[i], inside(where, std::to_string(i)));
      }
    } else if (keyword == "oneOf") {
      visit_one_of(argument, value, where);
    } else if (keyword == "$ref") {
      visit(root_.at(Json::json_pointer(argument.get<std::string>().substr(1))), value, where);
    } else if (!std::set<std::string>{"$schema", "$defs", "title", "description"}.contains(keyword)) {
      throw std::invalid_argument("schema: this check does not know the keyword '" + keyword + "'");
    }
  }

  void visit_additional(const Json& schema, const Json& argument, const Json& value,
                        const std::string& where) {
    for (const auto& [key, member] : value.items()) {
      if (value.is_object() && !schema.value("properties", Json::object()).contains(key)) {
        visit(argument, member, inside(where, key));
      }
    }
  }

  void visit_one_of(const Json& alternatives, const Json& value, const std::string& where) {
    std::string reasons;
    std::size_t matches = 0;
    for (const Json& alternative : alternatives) {
      const auto found = errors(root_, alternative, value);
      matches += found.empty() ? 1 : 0;
      if (!found.empty()) {
        reasons.append(" [").append(found.front()).append("]");
      }
    }
    if (matches != 1) {
      fail(where, "fits " + std::to_string(matches) + " of " + std::to_string(alternatives.size()) +
                      " alternatives, expected exactly one:" + reasons);
    }
  }

  const Json& root_;
  std::vector<std::string> errors_;
};

}  // namespace

Json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::invalid_argument("'" + path + "' cannot be read");
  }
  return Json::parse(file);
}

std::vector<std::string> SchemaCheck::errors(const Json& schema, const Json& value) {
  return Visit::errors(schema, schema, value);
}

}  // namespace vdnn::testing
