#pragma once
// Holds JSON that we write to its schema in docs/: the part of JSON Schema (draft 2020-12) that those use. A
// keyword that is not known here throws std::invalid_argument: it would go unchecked.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace vdnn::testing {

using Json = nlohmann::json;

// Throws std::invalid_argument where there is no such file.
Json read_json(const std::string& path);

class SchemaCheck {
 public:
  // Problems of `value`, one sentence each, with the JSON pointer of the place. Empty if it is valid.
  static std::vector<std::string> errors(const Json& schema, const Json& value);
};

}  // namespace vdnn::testing
