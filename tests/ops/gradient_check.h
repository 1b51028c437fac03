#pragma once
// Compares reference implementations with the definition of a derivative.

#include <functional>

#include "tests/ops/reference.h"

namespace vdnn::testing {

// Fails the test if `gradient` is not the gradient of `function` at x, element by element, by central
// differences of fourth order. With steps of 2^-10 and 2^-9 the truncation error is h^4 / 30 times the fifth
// derivative. Choose x so that no step crosses a kink of the function.
void expect_gradient(const reference::Array& x,
                     const std::function<double(const reference::Array&)>& function,
                     const reference::Array& gradient);

double dot(const reference::Array& a, const reference::Array& b);

}  // namespace vdnn::testing
