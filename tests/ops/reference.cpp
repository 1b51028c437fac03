#include "tests/ops/reference.h"

#include <algorithm>
#include <cmath>

namespace vdnn::reference {

namespace {

std::size_t size_of(const Dims& dims) {
  std::size_t size = 1;
  for (const std::int64_t extent : dims) {
    size *= static_cast<std::size_t>(extent);
  }
  return size;
}

}  // namespace

Array::Array(Dims shape) : dims(std::move(shape)), data(size_of(dims)) {}

Sums::Sums(const Dims& dims) : value(dims), magnitude(value.data.size()), terms(value.data.size()) {}

void Sums::add(std::size_t element, double term) {
  value.data[element] += term;
  magnitude[element] += std::abs(term);
  ++terms[element];
}

double Sums::bound(std::size_t element) const {
  constexpr double kUnitRoundoff = 0x1p-24;
  const double nu = static_cast<double>(terms[element]) * kUnitRoundoff;
  return nu / (1 - nu) * magnitude[element];
}

Array relu(const Array& x) {
  Array y(x.dims);
  std::ranges::transform(x.data, y.data.begin(), [](double value) { return std::max(value, 0.0); });
  return y;
}

Array relu_backward(const Array& y, const Array& dy) {
  Array dx(y.dims);
  std::ranges::transform(y.data, dy.data, dx.data.begin(),
                         [](double value, double gradient) { return value > 0 ? gradient : 0.0; });
  return dx;
}

Sums add(const Array& a, const Array& b) {
  Sums sum(a.dims);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    sum.add(i, a.data[i]);
    sum.add(i, b.data[i]);
  }
  return sum;
}

}  // namespace vdnn::reference
