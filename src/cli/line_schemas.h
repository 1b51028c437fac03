#pragma once
// The schemas in docs/ of the JSON lines that commands write, which the manual is made from.

#include <span>
#include <string_view>

namespace vdnn {

struct LineSchema {
  std::string_view name;  // of docs/NAME.schema.json
  std::string_view text;
};

std::span<const LineSchema> line_schemas();

}  // namespace vdnn
