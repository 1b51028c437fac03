#pragma once
// Writes and reads JSON objects that contain only texts and numbers, for example metadata. No nlohmann::json
// document is used: the destructor of a document allocates memory to flatten nested values, and ends the
// process if that fails.

#include <map>
#include <optional>
#include <string>
#include <variant>

namespace vdnn {

// Numbers are fp32: their texts are short, and reading them restores every bit.
using FlatJson = std::map<std::string, std::variant<std::string, float>>;

// Returns `text` in quotation marks. Throws nlohmann::json::type_error if `text` is not UTF-8, as
// write_flat_json() does.
std::string json_text(const std::string& text);
// `number` must be finite.
std::string json_text(float number);

// Keys are in ascending order.
std::string write_flat_json(const FlatJson& object);
// Returns nothing if `text` is not a JSON object, has a key twice, or has a value of another kind.
std::optional<FlatJson> read_flat_json(const std::string& text);

}  // namespace vdnn
