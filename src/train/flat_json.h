#pragma once
// JSON objects of texts and numbers alone, as metadata are. Written and read without a document in between:
// taking one apart needs memory (nlohmann::json flattens what nests before it is destroyed), and a destructor
// that is refused it ends the process.

#include <map>
#include <optional>
#include <string>
#include <variant>

namespace vdnn {

// Numbers are fp32: as such their texts are short, and come back to the last bit.
using FlatJson = std::map<std::string, std::variant<std::string, float>>;

// `text` in quotation marks. Throws nlohmann::json::type_error where it is not UTF-8; so does what follows.
std::string json_text(const std::string& text);
// Finite.
std::string json_text(float number);

// In order of the keys.
std::string write_flat_json(const FlatJson& object);
// Empty where `text` is no JSON object, has a key twice, or has a value of another kind.
std::optional<FlatJson> read_flat_json(const std::string& text);

}  // namespace vdnn
