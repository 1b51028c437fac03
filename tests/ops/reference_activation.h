#pragma once
// References of the activations whose results are rounded.

#include "tests/ops/reference.h"

namespace vdnn::reference {

Sums leaky_relu(const Array& x, double slope);
Sums leaky_relu_backward(const Array& x, const Array& dy, double slope);

Sums sigmoid(const Array& x);
// Uses the given y, which may have been rounded to single precision.
Sums sigmoid_backward(const Array& y, const Array& dy);

}  // namespace vdnn::reference
