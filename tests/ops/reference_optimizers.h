#pragma once
// Optimizers in double precision; see reference.h.

#include <vector>

#include "tests/ops/reference.h"

namespace vdnn::reference {

struct SgdStep {
  Sums parameter;
  Sums momentum;
};
struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;
  double learning_rate = 0;
};
SgdStep sgd(const Array& parameter, const Array& gradient, const Array& momentum, const SgdOptions& options);

// Results, with the largest error of single precision for each element.
struct Bounded {
  Array value;
  std::vector<double> bound;

  explicit Bounded(const Dims& dims) : value(dims), bound(value.data.size()) {}
};

struct AdamStep {
  Bounded parameter;
  Bounded first_moment;
  Bounded second_moment;
};
struct AdamOptions {
  double beta1 = 0;  // both at least 1/2, so that 1 - beta is exact in single precision
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  bool decoupled = false;
  double learning_rate = 0;
  double step = 0;   // counted from 0
  double scale = 1;  // of the gradient
};
struct AdamState {
  Array parameter;
  Array first_moment;
  Array second_moment;
};
AdamStep adam(const AdamState& state, const Array& gradient, const AdamOptions& options);

double gradient_norm(const std::vector<Array>& gradients);

}  // namespace vdnn::reference
