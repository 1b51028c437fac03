#include "tests/ops/reference_optimizers.h"

#include <cmath>

namespace vdnn::reference {

SgdStep sgd(const Array& parameter, const Array& gradient, const Array& momentum, const SgdOptions& options) {
  SgdStep step{.parameter = Sums(parameter.dims), .momentum = Sums(parameter.dims)};
  for (std::size_t i = 0; i < parameter.data.size(); ++i) {
    for (const double term :
         {options.momentum * momentum.data[i], gradient.data[i], options.weight_decay * parameter.data[i]}) {
      step.momentum.add(i, term);
      step.parameter.add(i, -options.learning_rate * term);
    }
    step.parameter.add(i, parameter.data[i]);
    // Two more roundings: the products with the learning rate and with the coefficients.
    step.parameter.terms[i] += 2;
    step.momentum.terms[i] += 1;
  }
  return step;
}

// The bounds add up first-order errors, one unit roundoff u per operation; second-order errors are less than
// a hundredth of these. e(x) is the error of a result x.
AdamStep adam(const AdamState& state, const Array& gradient, const AdamOptions& options) {
  constexpr double kUnitRoundoff = 0x1p-24;
  constexpr double kSecondOrder = 1.01;
  const Dims& dims = gradient.dims;
  AdamStep next{.parameter = Bounded(dims), .first_moment = Bounded(dims), .second_moment = Bounded(dims)};
  const double gain1 = 1 - options.beta1;
  const double gain2 = 1 - options.beta2;
  const double steps = options.step + 1;
  const double step_size = options.learning_rate / (1 - std::pow(options.beta1, steps));
  const double root_scale = 1 / std::sqrt(1 - std::pow(options.beta2, steps));
  for (std::size_t i = 0; i < gradient.data.size(); ++i) {
    const double w = state.parameter.data[i];
    const double m = state.first_moment.data[i];
    const double v = state.second_moment.data[i];
    const double clipped = options.scale * gradient.data[i];
    const double decay = options.decoupled ? 0 : options.weight_decay * w;
    const double g = clipped + decay;
    const double new_m = options.beta1 * m + gain1 * g;
    const double new_v = options.beta2 * v + gain2 * g * g;
    const double denominator = std::sqrt(new_v) * root_scale + options.epsilon;
    const double quotient = new_m / denominator;
    const double shrink = options.decoupled ? options.learning_rate * options.weight_decay * w : 0;
    next.first_moment.value.data[i] = new_m;
    next.second_moment.value.data[i] = new_v;
    next.parameter.value.data[i] = w - shrink - step_size * quotient;

    // g has two products and a sum: e(g) <= 2 u magnitude.
    const double magnitude = std::abs(clipped) + std::abs(decay);
    const double square = magnitude * magnitude;
    // m + gain1 (g - m) has e(g) and the roundings of the difference, the product and the sum.
    const double first_error =
        kUnitRoundoff * (std::abs(m) + gain1 * (2 * magnitude + 3 * (magnitude + std::abs(m))));
    // v + gain2 (g g - v): the square has e <= (2 * 2 + 1) u square; the rest is as for m.
    const double second_error = kUnitRoundoff * (v + gain2 * (5 * square + 3 * (square + v)));
    // |sqrt(a) - sqrt(b)| <= |a - b| / sqrt(a). Roundings: the root, its factor, the product and the sum.
    const double root_error = new_v > 0 ? second_error / std::sqrt(new_v) : 0;
    const double denominator_error = root_scale * root_error + 4 * kUnitRoundoff * denominator;
    const double quotient_error = (first_error + std::abs(quotient) * denominator_error) / denominator +
                                  kUnitRoundoff * std::abs(quotient);
    // Roundings: the step size and its product; the decay's factor, product and difference; the last
    // difference.
    const double parameter_error =
        step_size * quotient_error +
        kUnitRoundoff * (3 * step_size * std::abs(quotient) + 4 * std::abs(shrink) + 2 * std::abs(w));
    next.first_moment.bound[i] = kSecondOrder * first_error;
    next.second_moment.bound[i] = kSecondOrder * second_error;
    next.parameter.bound[i] = kSecondOrder * parameter_error;
  }
  return next;
}

double gradient_norm(const std::vector<Array>& gradients) {
  double sum = 0;
  for (const Array& gradient : gradients) {
    for (const double element : gradient.data) {
      sum += element * element;
    }
  }
  return std::sqrt(sum);
}

}  // namespace vdnn::reference
