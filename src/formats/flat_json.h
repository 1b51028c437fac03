#pragma once
// JSON objects that contain only texts and numbers, as metadata do. They are written and read without a
// document in between: destroying one needs memory (nlohmann::json flattens nested values first), and a
// destructor that gets none ends the process.

#include <map>
#include <optional>
#include <string>
#include <variant>

namespace vdnn {

// Numbers are fp32: their texts are short, and reading them restores every bit.
using FlatJson = std::map<std::string, std::variant<std::string, float>>;

// `text` in quotation marks. Throws nlohmann::json::type_error if it is not UTF-8, as the functions below do.
std::string json_text(const std::string& text);
// `number` must be finite.
std::string json_text(float number);

// Keys are in ascending order.
std::string write_flat_json(const FlatJson& object);
// Empty if `text` is not a JSON object, has a key twice, or has a value of another kind.
std::optional<FlatJson> read_flat_json(const std::string& text);

}  // namespace vdnn
