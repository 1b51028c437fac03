#pragma once
// What judges a reference: the definition of a derivative.

#include <functional>

#include "tests/ops/reference.h"

namespace vdnn::testing {

// Fails the test where `gradient` is not that of `function` at x, element by element, by central differences
// of fourth order: with steps of 2^-10 and 2^-9 what they leave out is h^4 / 30 times the fifth derivative,
// and they may not cross a bend of the function.
void expect_gradient(const reference::Array& x,
                     const std::function<double(const reference::Array&)>& function,
                     const reference::Array& gradient);

double dot(const reference::Array& a, const reference::Array& b);

}  // namespace vdnn::testing
