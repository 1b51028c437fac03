#include "src/formats/flat_json.h"

#include <nlohmann/json.hpp>

namespace vdnn {

namespace {

using FlatValue =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, float>;

// Receives the parser's events. Each function returns whether the parser is to continue.
class FlatReader final : public nlohmann::json_sax<FlatValue> {
 public:
  FlatJson object;

  bool start_object(std::size_t /*elements*/) override { return std::exchange(outside_, false); }
  bool end_object() override { return true; }
  bool key(std::string& key) override {
    key_ = key;
    return !object.contains(key);
  }
  bool string(std::string& text) override { return add(text); }
  bool number_integer(std::int64_t number) override { return add(static_cast<float>(number)); }
  bool number_unsigned(std::uint64_t number) override { return add(static_cast<float>(number)); }
  bool number_float(float number, const std::string& /*text*/) override { return add(number); }

  bool null() override { return false; }
  bool boolean(bool /*value*/) override { return false; }
  bool binary(FlatValue::binary_t& /*value*/) override { return false; }
  bool start_array(std::size_t /*elements*/) override { return false; }
  bool end_array() override { return false; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  template <class Value>
  bool add(const Value& value) {
    if (!outside_) {
      object.emplace(key_, value);
    }
    return !outside_;
  }

  bool outside_ = true;
  std::string key_;
};

}  // namespace

std::string json_text(const std::string& text) {
  return FlatValue(text).dump();
}

std::string json_text(float number) {
  return FlatValue(number).dump();
}

std::string write_flat_json(const FlatJson& object) {
  std::string text = "{";
  for (const auto& [key, value] : object) {
    text += text.size() > 1 ? "," : "";
    text += json_text(key) + ":" + std::visit([](const auto& one) { return json_text(one); }, value);
  }
  return text + "}";
}

std::optional<FlatJson> read_flat_json(const std::string& text) {
  FlatReader reader;
  // The parser ends its input at a zero byte and would ignore the bytes after it.
  if (text.find('\0') != std::string::npos || !FlatValue::sax_parse(text, &reader)) {
    return std::nullopt;
  }
  return std::move(reader.object);
}

}  // namespace vdnn
