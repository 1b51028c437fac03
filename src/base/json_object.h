#pragma once
// Reads a JSON object from an untrusted source key by key. Every accessor reports what is wrong and where;
// unknown keys are errors.

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

// `Json` is one of nlohmann's types. Mistakes are DataErrors of the form "DOCUMENT: WHERE lacks 'key'".
template <class Json>
class JsonObject {
 public:
  JsonObject(const Json& json, std::string document, std::string where)
      : json_(json), document_(std::move(document)), where_(std::move(where)) {
    if (!json.is_object()) {
      throw DataError(document_ + ": " + where_ + " is not an object");
    }
  }

  const Json& at(const char* key) {
    known_.insert(key);
    const auto found = json_.find(key);
    if (found == json_.end()) {
      throw DataError(document_ + ": " + where_ + " lacks '" + key + "'");
    }
    return *found;
  }
  bool has(const char* key) const { return json_.contains(key); }

  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) {
      fail(key, "is not a string");
    }
    return value.template get<std::string>();
  }
  bool boolean(const char* key) {
    const Json& value = at(key);
    if (!value.is_boolean()) {
      fail(key, "is not true or false");
    }
    return value.template get<bool>();
  }
  std::uint64_t number(const char* key) { return number(at(key), key); }
  std::uint64_t number(const Json& value, const char* key) const {
    if (!value.is_number_unsigned()) {
      fail(key, "is not a count");
    }
    return value.template get<std::uint64_t>();
  }
  // A finite number, since JSON has no others.
  double real(const Json& value, const char* key) const {
    if (!value.is_number()) {
      fail(key, "is not a number");
    }
    return value.template get<double>();
  }
  // A whole number below `bound`.
  std::uint32_t id(const Json& value, const char* key, std::size_t bound) const {
    const std::uint64_t wide = number(value, key);
    if (wide >= bound) {
      fail(key, "is out of range");
    }
    return static_cast<std::uint32_t>(wide);
  }
  std::uint32_t id(const char* key, std::size_t bound) { return id(at(key), key, bound); }
  const Json& array(const char* key) {
    const Json& value = at(key);
    if (!value.is_array()) {
      fail(key, "is not a list");
    }
    return value;
  }

  void require_no_other_keys() const {
    for (const auto& item : json_.items()) {
      if (!known_.contains(item.key())) {
        throw DataError(document_ + ": " + where_ + " has the unknown key '" + item.key() + "'");
      }
    }
  }

  [[noreturn]] void fail(const char* key, const char* what) const {
    throw DataError(document_ + ": " + where_ + ": '" + key + "' " + what);
  }

 private:
  const Json& json_;
  std::string document_;
  std::string where_;
  std::set<std::string> known_;
};

}  // namespace vdnn
