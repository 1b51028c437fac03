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

namespace {

// Half the distance of neighbouring numbers: relative to a number, and absolute among the smallest numbers.
struct Roundoff {
  double unit = 0;
  double smallest = 0;
};

Roundoff roundoff_of(DataType type) {
  switch (type) {
    case DataType::kBf16:
      return {.unit = 0x1p-8, .smallest = 0x1p-134};
    case DataType::kF16:
      return {.unit = 0x1p-11, .smallest = 0x1p-25};
    default:
      return {};
  }
}

// Rounds to nearest, ties to even, by the definition.
double rounded(double value, int fraction_bits, int least_exponent) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  const int exponent = std::max(std::ilogb(value), least_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, fraction_bits - exponent)), exponent - fraction_bits);
}

// The error bound of `value` after rounding to the type, if `value` was off by `error`.
double bound_after_rounding(double value, double error, DataType type) {
  const Roundoff rounding = roundoff_of(type);
  return error + rounding.unit * (std::abs(value) + error) + rounding.smallest;
}

}  // namespace

double Sums::fp32_bound(std::size_t element) const {
  constexpr double kUnitRoundoff = 0x1p-24;
  const double nu = static_cast<double>(terms[element]) * kUnitRoundoff;
  return nu / (1 - nu) * magnitude[element];
}

double Sums::bound(std::size_t element, DataType type) const {
  return bound_after_rounding(value.data[element], fp32_bound(element), type);
}

double Sums::bound_with_part(std::size_t element, DataType type, double part) const {
  return bound_after_rounding(value.data[element], bound_after_rounding(part, fp32_bound(element), type),
                              type);
}

Array rounded(Array array, DataType type) {
  for (double& number : array.data) {
    switch (type) {
      case DataType::kBf16:
        number = rounded(number, 7, -126);
        break;
      case DataType::kF16:
        number = rounded(number, 10, -14);
        break;
      default:
        number = static_cast<double>(static_cast<float>(number));
    }
  }
  return array;
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
