#pragma once
// Normalisations: sets of elements that share a mean and a variance. The parameter `roundings` is the number
// of single-precision roundings in one whole sum of the implementation under test: the number of terms if it
// sums in single precision, 0 if it sums in double.
//
// The bounds count roundings. Each rounding error is at most u (2^-24) times the magnitude of the rounded
// number. Every term of a sum is part of at most Sums::terms roundings (reference.h).

#include <cstddef>
#include <vector>

#include "tests/ops/reference.h"

namespace vdnn::reference {

// The set to which each element belongs, in logical order.
struct Sets {
  std::vector<std::size_t> of;
  Dims dims;  // of an array with one element per set

  std::int64_t elements() const;  // in one set; all sets have the same size
};
Sets channel_sets(const Dims& x);                     // C sets
Sets group_sets(const Dims& x, std::int64_t groups);  // N x groups sets

struct Statistics {
  Sums mean;
  Sums variance;  // with divisor n
};
Statistics statistics(const Array& x, const Sets& sets, std::int64_t roundings);

// The mean and deviation that normalise an element.
struct Normalizer {
  Array mean;
  Array reciprocal_deviation;
};
Normalizer normalizer(const Array& mean, const Array& variance, double epsilon);

// y = scale (x - mean) / deviation + shift, with one scale and one shift per channel.
struct Affine {
  Array scale;
  Array shift;
};
Sums normalization(const Array& x, const Sets& sets, const Normalizer& normalizer, const Affine& affine,
                   std::int64_t roundings);

struct NormalizationGradients {
  Sums x;
  Sums scale;
  Sums shift;
};
NormalizationGradients normalization_backward(const Array& x, const Sets& sets, const Normalizer& normalizer,
                                              const Array& dy, const Array& scale, std::int64_t roundings);

// Computes running + momentum (batch - running).
Sums follow(const Array& running, const Array& batch, double momentum);

}  // namespace vdnn::reference
