#include "tests/ops/gradient_check.h"

#include <gtest/gtest.h>

namespace vdnn::testing {

void expect_gradient(const reference::Array& x,
                     const std::function<double(const reference::Array&)>& function,
                     const reference::Array& gradient) {
  constexpr double kStep = 0x1p-10;
  ASSERT_EQ(gradient.dims, x.dims);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const auto difference = [&](double step) {
      reference::Array moved = x;
      moved.data[i] = x.data[i] + step;
      const double above = function(moved);
      moved.data[i] = x.data[i] - step;
      return above - function(moved);
    };
    const double derivative = (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
    ASSERT_NEAR(gradient.data[i], derivative, 1e-7) << "element " << i;
  }
}

double dot(const reference::Array& a, const reference::Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    sum += a.data[i] * b.data[i];
  }
  return sum;
}

}  // namespace vdnn::testing
