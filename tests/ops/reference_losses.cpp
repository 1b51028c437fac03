#include "tests/ops/reference_losses.h"

#include <algorithm>
#include <cmath>

namespace vdnn::reference {

namespace {

// One place and the positions of its logits.
struct Place {
  std::size_t sample = 0;
  std::int32_t target = 0;
  std::vector<std::size_t> elements;  // one per class
};

std::vector<Place> places_of(const Dims& logits, const std::vector<std::int32_t>& targets) {
  const auto samples = static_cast<std::size_t>(logits[0]);
  const auto classes = static_cast<std::size_t>(logits[1]);
  const std::size_t space = targets.size() / samples;
  std::vector<Place> places;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Place place{.sample = i / space, .target = targets[i], .elements = {}};
    for (std::size_t k = 0; k < classes; ++k) {
      place.elements.push_back((place.sample * classes + k) * space + i % space);
    }
    places.push_back(std::move(place));
  }
  return places;
}

double count_of(const std::vector<std::int32_t>& targets) {
  return static_cast<double>(std::ranges::count_if(targets, [](std::int32_t target) { return target >= 0; }));
}

// For each sample, true if any of its places counts.
std::vector<bool> samples_that_count(std::size_t samples, const std::vector<std::int32_t>& targets) {
  std::vector<bool> result(samples);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::size_t sample = i / (targets.size() / samples);
    result[sample] = result[sample] || targets[i] >= 0;
  }
  return result;
}

bool hits(const Place& place, std::size_t k) {
  return place.target >= 0 && static_cast<std::size_t>(place.target) == k;
}

}  // namespace

Loss softmax_cross_entropy(const Array& logits, const std::vector<std::int32_t>& targets) {
  Loss loss{.counted = count_of(targets), .probabilities = Array(logits.dims)};
  for (const Place& place : places_of(logits.dims, targets)) {
    std::vector<double> row;
    for (const std::size_t element : place.elements) {
      row.push_back(logits.data[element]);
    }
    const auto largest = std::ranges::max_element(row);
    double sum = 0;
    for (const double logit : row) {
      sum += std::exp(logit - *largest);
    }
    for (std::size_t k = 0; k < row.size(); ++k) {
      loss.probabilities.data[place.elements[k]] = std::exp(row[k] - *largest) / sum;
    }
    if (place.target >= 0) {
      loss.mean -= std::log(loss.probabilities.data[place.elements[static_cast<std::size_t>(place.target)]]);
      loss.correct += largest - row.begin() == place.target ? 1 : 0;
    }
  }
  loss.mean = loss.counted > 0 ? loss.mean / loss.counted : 0;
  return loss;
}

Array softmax_cross_entropy_backward(const Array& logits, const std::vector<std::int32_t>& targets,
                                     double weight) {
  const Loss loss = softmax_cross_entropy(logits, targets);
  Array gradient(logits.dims);
  for (const Place& place : places_of(logits.dims, targets)) {
    for (std::size_t k = 0; place.target >= 0 && k < place.elements.size(); ++k) {
      const double p = loss.probabilities.data[place.elements[k]];
      gradient.data[place.elements[k]] = weight * (p - (hits(place, k) ? 1 : 0)) / loss.counted;
    }
  }
  return gradient;
}

std::vector<DiceCoefficient> soft_dice(const Array& probabilities, const std::vector<std::int32_t>& targets,
                                       double smooth) {
  const auto classes = static_cast<std::size_t>(probabilities.dims[1]);
  const auto samples = static_cast<std::size_t>(probabilities.dims[0]);
  std::vector<DiceCoefficient> coefficients(samples * classes,
                                            {.numerator = smooth, .denominator = smooth, .weight = 0});
  for (const Place& place : places_of(probabilities.dims, targets)) {
    for (std::size_t k = 0; place.target >= 0 && k < classes; ++k) {
      const double p = probabilities.data[place.elements[k]];
      const double t = hits(place, k) ? 1 : 0;
      DiceCoefficient& coefficient = coefficients[place.sample * classes + k];
      coefficient.numerator += 2 * p * t;
      coefficient.denominator += p + t;
    }
  }
  const std::vector<bool> in_mean = samples_that_count(samples, targets);
  const auto counted = static_cast<double>(std::ranges::count(in_mean, true));
  for (std::size_t i = 0; i < samples; ++i) {
    for (std::size_t k = 0; in_mean[i] && k < classes; ++k) {
      coefficients[i * classes + k].weight = 1 / (counted * static_cast<double>(classes));
    }
  }
  return coefficients;
}

Loss dice_cross_entropy(const Array& logits, const std::vector<std::int32_t>& targets, double smooth) {
  Loss loss = softmax_cross_entropy(logits, targets);
  const std::vector<DiceCoefficient> dice = soft_dice(loss.probabilities, targets, smooth);
  for (const DiceCoefficient& each : dice) {
    loss.mean += each.weight * (1 - each.numerator / each.denominator);
  }
  return loss;
}

// Applies the quotient rule, then the softmax's Jacobian by its definition.
Array dice_cross_entropy_backward(const Array& logits, const std::vector<std::int32_t>& targets,
                                  double smooth, double weight) {
  const Array probabilities = softmax_cross_entropy(logits, targets).probabilities;
  const std::vector<DiceCoefficient> dice = soft_dice(probabilities, targets, smooth);
  const auto classes = static_cast<std::size_t>(logits.dims[1]);
  Array gradient = softmax_cross_entropy_backward(logits, targets, weight);
  for (const Place& place : places_of(logits.dims, targets)) {
    for (std::size_t k = 0; place.target >= 0 && k < classes; ++k) {
      const auto [numerator, denominator, weight_in_mean] = dice[place.sample * classes + k];
      const double t = hits(place, k) ? 1 : 0;
      const double slope = -(2 * t * denominator - numerator) / (denominator * denominator) * weight_in_mean;
      for (std::size_t j = 0; j < classes; ++j) {
        const double p_k = probabilities.data[place.elements[k]];
        const double p_j = probabilities.data[place.elements[j]];
        gradient.data[place.elements[j]] += weight * slope * p_k * ((j == k ? 1 : 0) - p_j);
      }
    }
  }
  return gradient;
}

Loss mean_squared_error(const Array& prediction, const Array& targets) {
  Loss loss{.counted = static_cast<double>(prediction.data.size()), .probabilities = {}};
  for (std::size_t i = 0; i < prediction.data.size(); ++i) {
    loss.mean += std::pow(prediction.data[i] - targets.data[i], 2) / loss.counted;
  }
  return loss;
}

Array mean_squared_error_backward(const Array& prediction, const Array& targets, double weight) {
  Array gradient(prediction.dims);
  for (std::size_t i = 0; i < gradient.data.size(); ++i) {
    gradient.data[i] =
        weight * 2 * (prediction.data[i] - targets.data[i]) / static_cast<double>(gradient.data.size());
  }
  return gradient;
}

}  // namespace vdnn::reference
