#include "tests/ops/reference_normalization.h"

#include <algorithm>
#include <cmath>

namespace vdnn::reference {

namespace {

std::size_t space_of(const Dims& x) {
  std::size_t space = 1;
  for (std::size_t axis = 2; axis < x.size(); ++axis) {
    space *= static_cast<std::size_t>(x[axis]);
  }
  return space;
}

// The mean of value(element) over each set.
template <class Value>
std::vector<double> means(const Sets& sets, const Value& value) {
  std::vector<double> sums(Array(sets.dims).data.size());
  for (std::size_t i = 0; i < sets.of.size(); ++i) {
    sums[sets.of[i]] += value(i);
  }
  for (double& sum : sums) {
    sum /= static_cast<double>(sets.elements());
  }
  return sums;
}

}  // namespace

std::int64_t Sets::elements() const {
  return static_cast<std::int64_t>(of.size() / Array(dims).data.size());
}

Sets channel_sets(const Dims& x) {
  Sets sets{.of = std::vector<std::size_t>(Array(x).data.size()), .dims = {x[1]}};
  for (std::size_t i = 0; i < sets.of.size(); ++i) {
    sets.of[i] = i / space_of(x) % static_cast<std::size_t>(x[1]);
  }
  return sets;
}

Sets group_sets(const Dims& x, std::int64_t groups) {
  Sets sets{.of = std::vector<std::size_t>(Array(x).data.size()), .dims = {x[0], groups}};
  for (std::size_t i = 0; i < sets.of.size(); ++i) {
    sets.of[i] = i / (space_of(x) * static_cast<std::size_t>(x[1] / groups));
  }
  return sets;
}

// The error of a mean comes from its sum and the division: roundings + 2. The error of a variance has two
// parts. The sum of squares has three roundings per term and the division's (+ 4). The square of the mean's
// error is below the square of the mean magnitude times the same factor.
Statistics statistics(const Array& x, const Sets& sets, std::int64_t roundings) {
  Statistics result{.mean = Sums(sets.dims), .variance = Sums(sets.dims)};
  result.mean.value.data = means(sets, [&](std::size_t i) { return x.data[i]; });
  result.mean.magnitude = means(sets, [&](std::size_t i) { return std::abs(x.data[i]); });
  std::ranges::fill(result.mean.terms, roundings + 2);
  result.variance.value.data = means(sets, [&](std::size_t i) {
    const double from_mean = x.data[i] - result.mean.value.data[sets.of[i]];
    return from_mean * from_mean;
  });
  for (std::size_t set = 0; set < result.variance.magnitude.size(); ++set) {
    const double magnitude = result.mean.magnitude[set];
    result.variance.magnitude[set] = result.variance.value.data[set] + magnitude * magnitude;
  }
  std::ranges::fill(result.variance.terms, roundings + 4);
  return result;
}

Normalizer normalizer(const Array& mean, const Array& variance, double epsilon) {
  Normalizer result{.mean = mean, .reciprocal_deviation = Array(variance.dims)};
  std::ranges::transform(variance.data, result.reciprocal_deviation.data.begin(),
                         [epsilon](double value) { return 1 / std::sqrt(value + epsilon); });
  return result;
}

// Roundings: the mean (roundings + 2), the difference from it (1), and the deviation (half of the variance's,
// the sum, the root and the reciprocal: less than roundings + 5). Then the product with the scale (1), the
// product with x (1) and the last sum (1). An implementation may also combine mean and shift into one shift,
// which rounds the same magnitudes. The mean's error is relative to the mean magnitude of its set.
Sums normalization(const Array& x, const Sets& sets, const Normalizer& normalizer, const Affine& affine,
                   std::int64_t roundings) {
  const Sets channels = channel_sets(x.dims);
  const std::vector<double> magnitudes = means(sets, [&](std::size_t i) { return std::abs(x.data[i]); });
  Sums y(x.dims);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::size_t set = sets.of[i];
    const double mean = normalizer.mean.data[set];
    const double factor = normalizer.reciprocal_deviation.data[set] * affine.scale.data[channels.of[i]];
    const double shift = affine.shift.data[channels.of[i]];
    y.value.data[i] = (x.data[i] - mean) * factor + shift;
    y.magnitude[i] =
        (std::abs(x.data[i]) + std::abs(mean) + (roundings > 0 ? magnitudes[set] : 0)) * std::abs(factor) +
        std::abs(shift);
    y.terms[i] = roundings + 9;
  }
  return y;
}

// With z = (x - mean) / deviation and g = scale dy: dx = (g - mean(g) - z mean(g z)) / deviation. Mean and
// deviation are given. z has 5 roundings: the difference, the deviation (3 if computed from a variance) and
// the product. g z has 2 more. A mean of these adds the roundings of its sum and of the division. The outer
// expression adds three products and two sums.
NormalizationGradients normalization_backward(const Array& x, const Sets& sets, const Normalizer& normalizer,
                                              const Array& dy, const Array& scale, std::int64_t roundings) {
  const Sets channels = channel_sets(x.dims);
  const auto z = [&](std::size_t i) {
    return (x.data[i] - normalizer.mean.data[sets.of[i]]) * normalizer.reciprocal_deviation.data[sets.of[i]];
  };
  const auto g = [&](std::size_t i) { return scale.data[channels.of[i]] * dy.data[i]; };
  const std::vector<double> g_means = means(sets, g);
  const std::vector<double> gz_means = means(sets, [&](std::size_t i) { return g(i) * z(i); });
  const std::vector<double> g_magnitudes = means(sets, [&](std::size_t i) { return std::abs(g(i)); });
  const std::vector<double> gz_magnitudes = means(sets, [&](std::size_t i) { return std::abs(g(i) * z(i)); });
  NormalizationGradients result{.x = Sums(x.dims), .scale = Sums(scale.dims), .shift = Sums(scale.dims)};
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::size_t set = sets.of[i];
    const double r = normalizer.reciprocal_deviation.data[set];
    result.x.value.data[i] = r * (g(i) - g_means[set] - z(i) * gz_means[set]);
    result.x.magnitude[i] = r * (std::abs(g(i)) + g_magnitudes[set] + std::abs(z(i)) * gz_magnitudes[set]);
    result.x.terms[i] = roundings + 5 + 2 + 1 + 5;
    result.scale.add(channels.of[i], dy.data[i] * z(i));
    result.shift.add(channels.of[i], dy.data[i]);
  }
  std::ranges::fill(result.scale.terms, roundings + 5 + 2);
  std::ranges::fill(result.shift.terms, roundings + 2);
  return result;
}

// Roundings: two differences, two products (one with n / (n - 1), which is itself rounded) and a sum.
Sums follow(const Array& running, const Array& batch, double momentum) {
  Sums moved(running.dims);
  for (std::size_t i = 0; i < running.data.size(); ++i) {
    moved.add(i, running.data[i]);
    moved.add(i, -momentum * running.data[i]);
    moved.add(i, momentum * batch.data[i]);
    moved.terms[i] = 6;
  }
  return moved;
}

}  // namespace vdnn::reference
