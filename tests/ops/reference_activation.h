#pragma once
// Activations that round.

#include "tests/ops/reference.h"

namespace vdnn::reference {

Sums leaky_relu(const Array& x, double slope);
Sums leaky_relu_backward(const Array& x, const Array& dy, double slope);

Sums sigmoid(const Array& x);
// Of the y that it is given, which single precision may have rounded.
Sums sigmoid_backward(const Array& y, const Array& dy);

}  // namespace vdnn::reference
