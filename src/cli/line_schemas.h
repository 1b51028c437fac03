#pragma once
// The schemas in docs/ of the JSON lines that commands write. The manual is made from them.

#include <span>
#include <string_view>

namespace vdnn {

struct LineSchema {
  std::string_view name;  // NAME of docs/NAME.schema.json
  std::string_view text;
};

std::span<const LineSchema> line_schemas();

}  // namespace vdnn
