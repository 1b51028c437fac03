#pragma once
// Finds floating-point numbers that are not finite.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace vdnn {

// Returns "nan", "inf" or "-inf"; the sign of a NaN is ignored.
inline std::string nonfinite_text(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  return value > 0 ? "inf" : "-inf";
}

struct NonfiniteFloats {
  std::size_t count = 0;     // numbers that are not finite; > 0
  std::size_t elements = 0;  // all numbers
  std::size_t first = 0;     // the index of the first number that is not finite
  float value = 0;           // that number
};

// Returns nothing if all `values` are finite.
inline std::optional<NonfiniteFloats> find_nonfinite(std::span<const float> values) {
  const auto is_nonfinite = [](float value) { return !std::isfinite(value); };
  const auto first = std::ranges::find_if(values, is_nonfinite);
  if (first == values.end()) {
    return std::nullopt;
  }
  return NonfiniteFloats{.count = static_cast<std::size_t>(std::count_if(first, values.end(), is_nonfinite)),
                         .elements = values.size(),
                         .first = static_cast<std::size_t>(first - values.begin()),
                         .value = *first};
}

// Returns for example "3 of 400, the first at 17: nan".
inline std::string to_string(const NonfiniteFloats& found) {
  return std::to_string(found.count) + " of " + std::to_string(found.elements) + ", the first at " +
         std::to_string(found.first) + ": " + nonfinite_text(static_cast<double>(found.value));
}

}  // namespace vdnn
