#pragma once
// Parses JSON from an untrusted source with nlohmann's parser, and shields callers from three of its habits.
// The parser throws exceptions of its own, treats a zero byte as the end of the text, and accepts any depth.

#include <string_view>

namespace vdnn {

// Returns a discarded value if the text as a whole is not JSON, or is nested deeper than `deepest` (a bare
// number or text has depth 0). `Json` is one of nlohmann's types.
template <class Json>
Json parse_json_text(std::string_view text, int deepest) {
  if (text.find('\0') != std::string_view::npos) {
    return Json(Json::value_t::discarded);
  }
  bool too_deep = false;
  const auto keep = [&](int depth, typename Json::parse_event_t /*event*/, Json& /*parsed*/) {
    too_deep = too_deep || depth > deepest;
    return !too_deep;
  };
  Json json = Json::parse(text, keep, false);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

}  // namespace vdnn
