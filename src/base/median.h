#pragma once

#include <algorithm>
#include <vector>

namespace vdnn {

// The upper of the two middle values if their number is even; 0 for no values.
inline double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace vdnn
