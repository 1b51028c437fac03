#pragma once
// Checks JSON that we write against its schema in docs/. It implements the part of JSON Schema (draft
// 2020-12) that our schemas use. Any other keyword throws std::invalid_argument, since it would go unchecked.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace vdnn::testing {

using Json = nlohmann::json;

// Throws std::invalid_argument if there is no such file.
Json read_json(const std::string& path);

class SchemaCheck {
 public:
  // Returns the problems of `value`, one sentence each, with the JSON pointer of the place. Empty if `value`
  // is valid.
  static std::vector<std::string> errors(const Json& schema, const Json& value);
};

}  // namespace vdnn::testing
