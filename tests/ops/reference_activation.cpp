#include "tests/ops/reference_activation.h"

#include <cmath>

namespace vdnn::reference {

namespace {

// Applies function(element) to each element, with this number of relative roundings.
template <class Function>
Sums elementwise(const Dims& dims, std::int64_t roundings, const Function& function) {
  Sums result(dims);
  for (std::size_t i = 0; i < result.terms.size(); ++i) {
    result.add(i, function(i));
    result.terms[i] = roundings;
  }
  return result;
}

}  // namespace

// Roundings: one product.
Sums leaky_relu(const Array& x, double slope) {
  return elementwise(x.dims, 1, [&](std::size_t i) { return x.data[i] < 0 ? slope * x.data[i] : x.data[i]; });
}

Sums leaky_relu_backward(const Array& x, const Array& dy, double slope) {
  return elementwise(x.dims, 1,
                     [&](std::size_t i) { return x.data[i] > 0 ? dy.data[i] : slope * dy.data[i]; });
}

// The exponential is off by less than a unit in its last place, which counts as two roundings. An
// implementation may have it in numerator and denominator. The sum and the division add one rounding each.
Sums sigmoid(const Array& x) {
  return elementwise(x.dims, 6, [&](std::size_t i) { return 1 / (1 + std::exp(-x.data[i])); });
}

// Roundings: a difference and two products.
Sums sigmoid_backward(const Array& y, const Array& dy) {
  return elementwise(y.dims, 3, [&](std::size_t i) { return dy.data[i] * y.data[i] * (1 - y.data[i]); });
}

}  // namespace vdnn::reference
