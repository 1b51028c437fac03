#pragma once
// A reference implementation of every layer, in double precision and as plain as possible. The loops follow
// the definition, and tensors are in logical order (N, C, space; filters K, C, space). The references share
// no code with the layers under test.
//
// Each element of a result comes with the data for an error bound: the number of summed terms and the sum of
// their absolute values. A floating-point sum of n products in any order is off by at most gamma_n sum |a b|.
// Here u is the unit roundoff and gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical
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
  // The error bound of a single-precision result, or of one that is then rounded to another type.
  double bound(std::size_t element, DataType type = DataType::kF32) const;
  // The bound if a part of the sum, of value `part`, was rounded to the type before the rest was added.
  double bound_with_part(std::size_t element, DataType type, double part) const;

 private:
  double fp32_bound(std::size_t element) const;
};

// Rounds every element to the nearest number of that floating-point type.
Array rounded(Array array, DataType type);

Array relu(const Array& x);
Array relu_backward(const Array& y, const Array& dy);

Sums add(const Array& a, const Array& b);

}  // namespace vdnn::reference
