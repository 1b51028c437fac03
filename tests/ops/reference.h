#pragma once
// Every layer once more, in double precision and as plainly as it can be written: loops over the definition,
// tensors in logical order (N, C, space; filters K, C, space), no code shared with the layers under test.
//
// Each element of a result comes with what an error bound needs: how many terms were summed, and the sum of
// their absolute values. A sum of n products in floating point of unit roundoff u, taken in any order, is off
// by at most gamma_n sum |a b|, gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed., section 3.1).

#include <cstdint>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn::reference {

struct Array {
  Dims dims;
  std::vector<double> data;

  Array() = default;
  explicit Array(Dims shape);
};

struct Sums {
  Array value;
  std::vector<double> magnitude;
  std::vector<std::int64_t> terms;

  explicit Sums(const Dims& dims);
  void add(std::size_t element, double term);
  // The error bound of single precision; of another type, the bound of a single-precision result that is
  // rounded to it.
  double bound(std::size_t element, DataType type = DataType::kF32) const;
  // The same where a part of the sum, of that value, was rounded to the type before the rest was added.
  double bound_with_part(std::size_t element, DataType type, double part) const;

 private:
  double fp32_bound(std::size_t element) const;
};

// The nearest numbers of that type of floating-point numbers.
Array rounded(Array array, DataType type);

Array relu(const Array& x);
Array relu_backward(const Array& y, const Array& dy);

Sums add(const Array& a, const Array& b);

}  // namespace vdnn::reference
