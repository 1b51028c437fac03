#pragma once
// Losses over classes: a row of logits and a target for each place. src/ops/cpu has the formulas
// (class_places.cpp, dice_cross_entropy.cpp). Exponentials and sums are in double.
//
// A kernel cannot report a target that is not a class. Such a target makes the loss NaN, and no kernel reads
// outside the arrays.

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/row_sums.h"

namespace vdnn::cuda {

VDNN_HOST_DEVICE inline bool place_counts(std::int32_t target) {
  return target >= 0;
}
VDNN_HOST_DEVICE inline bool is_class(std::int32_t target, std::uint64_t k) {
  return static_cast<std::uint64_t>(target) == k;
}

// Computes, for each place, the log of the sum of exponentials and the index of the largest logit (the first
// one among equal logits). `lanes` threads share a row, so that a GPU is also busy if there are many classes
// and few places.
struct LogSums {
  static constexpr const char* kName = "log_sums";
  struct Shared {
    std::uint64_t largest[kBlockThreads];
    double sum[kBlockThreads];
  };

  const float* logits = nullptr;
  std::uint64_t places = 0;
  std::uint64_t classes = 0;
  std::uint32_t lanes = 1;  // per place: a power of two, at most kBlockThreads and `classes`
  double* log_sums = nullptr;
  std::uint64_t* largest = nullptr;

  // The largest number of lanes that leaves each lane eight classes or more; at least 1.
  static std::uint32_t lanes_for(std::uint64_t classes) {
    std::uint32_t lanes = 1;
    while (lanes < kBlockThreads && 16 * std::uint64_t{lanes} <= classes) {
      lanes *= 2;
    }
    return lanes;
  }

  std::uint64_t blocks() const { return divide_up(places, kBlockThreads / lanes); }

  template <class Block>
  VDNN_HOST_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::uint64_t first = block.index() * (kBlockThreads / lanes);
    block.each([&](std::uint32_t thread) {
      if (first + thread / lanes < places) {
        shared.largest[thread] = largest_of_lane(row(first + thread / lanes), thread % lanes);
      }
    });
    for (std::uint32_t half = lanes / 2; half > 0; half /= 2) {
      block.each([&](std::uint32_t thread) {
        if (first + thread / lanes < places && thread % lanes < half) {
          shared.largest[thread] =
              larger(row(first + thread / lanes), shared.largest[thread], shared.largest[thread + half]);
        }
      });
    }
    block.each([&](std::uint32_t thread) {
      if (first + thread / lanes < places) {
        const float* const logit = row(first + thread / lanes);
        const auto maximum = static_cast<double>(logit[shared.largest[thread - thread % lanes]]);
        double sum = 0;
        for (std::uint64_t k = thread % lanes; k < classes; k += lanes) {
          sum += std::exp(static_cast<double>(logit[k]) - maximum);
        }
        shared.sum[thread] = sum;
      }
    });
    for (std::uint32_t half = lanes / 2; half > 0; half /= 2) {
      block.each([&](std::uint32_t thread) {
        if (thread % lanes < half) {
          shared.sum[thread] += shared.sum[thread + half];
        }
      });
    }
    block.each([&](std::uint32_t thread) {
      const std::uint64_t place = first + thread / lanes;
      if (place < places && thread % lanes == 0) {
        const std::uint64_t k = shared.largest[thread];
        log_sums[place] = static_cast<double>(row(place)[k]) + std::log(shared.sum[thread]);
        largest[place] = k;
      }
    });
  }

 private:
  VDNN_HOST_DEVICE const float* row(std::uint64_t place) const { return logits + place * classes; }
  VDNN_HOST_DEVICE std::uint64_t largest_of_lane(const float* logit, std::uint64_t lane) const {
    std::uint64_t found = lane;
    for (std::uint64_t k = lane + lanes; k < classes; k += lanes) {
      found = logit[k] > logit[found] ? k : found;
    }
    return found;
  }
  VDNN_HOST_DEVICE static std::uint64_t larger(const float* logit, std::uint64_t a, std::uint64_t b) {
    const bool second = logit[b] > logit[a] || (logit[b] == logit[a] && b < a);
    return second ? b : a;
  }
};

// Sums over all places: loss, correct predictions, places that count.
struct PlaceMetrics {
  static constexpr const char* kName = "place_metrics";
  using Sum = Sums<3>;
  const float* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const double* log_sums = nullptr;
  const std::uint64_t* largest = nullptr;
  std::uint64_t classes = 0;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t, std::uint64_t place) const {
    const std::int32_t target = targets[place];
    if (!place_counts(target)) {
      return {};
    }
    if (static_cast<std::uint64_t>(target) >= classes) {
      return {{NAN, 0, 1}};
    }
    const auto wanted = static_cast<double>(logits[place * classes + static_cast<std::uint64_t>(target)]);
    // If a logit is NaN, the log of the sum is not finite, and the index of the largest is arbitrary.
    const bool right = std::isfinite(log_sums[place]) && is_class(target, largest[place]);
    return {{log_sums[place] - wanted, right ? 1.0 : 0.0, 1}};
  }
};

// Counts, for each sample, the places that count for the loss.
struct PlaceCounts {
  static constexpr const char* kName = "place_counts";
  using Sum = Sums<1>;
  const std::int32_t* targets = nullptr;
  std::uint64_t places = 0;  // of a sample

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t sample, std::uint64_t place) const {
    return {{place_counts(targets[sample * places + place]) ? 1.0 : 0.0}};
  }
};

// Sums over all samples: the number of places that count, and the number of samples with such a place.
struct SampleCounts {
  static constexpr const char* kName = "sample_counts";
  using Sum = Sums<2>;
  const Sums<1>* place_counts = nullptr;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t, std::uint64_t sample) const {
    const double places = place_counts[sample].value[0];
    return {{places, places > 0 ? 1.0 : 0.0}};
  }
};

VDNN_HOST_DEVICE inline double probability_of(float logit, double log_sum) {
  return std::exp(static_cast<double>(logit) - log_sum);
}

struct Probabilities {
  static constexpr const char* kName = "probabilities";
  const float* logits = nullptr;
  const double* log_sums = nullptr;
  float* probabilities = nullptr;  // may be logits
  Divisor classes;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    probabilities[i] = static_cast<float>(probability_of(logits[i], log_sums[classes.quotient(i)]));
  }
};

// dX = weight (p - onehot) / places that count.
struct SoftmaxGradient {
  static constexpr const char* kName = "softmax_gradient";
  const float* probabilities = nullptr;
  const std::int32_t* targets = nullptr;
  const Sums<1>* counted = nullptr;
  float* gradient = nullptr;  // may be probabilities
  Divisor classes;
  double weight = 1;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t place = classes.quotient(i);
    const double hit = is_class(targets[place], i - place * classes.value()) ? 1 : 0;
    gradient[i] =
        place_counts(targets[place])
            ? static_cast<float>(weight * ((static_cast<double>(probabilities[i]) - hit) / counted->value[0]))
            : 0;
  }
};

// For each class of each sample, the sums of p t, p and t over the places that count.
struct ClassSums {
  static constexpr const char* kName = "class_sums";
  using Sum = Sums<3>;
  const float* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const double* log_sums = nullptr;
  std::uint64_t places = 0;  // of a sample
  std::uint64_t classes = 0;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t row, std::uint64_t i) const {
    const std::uint64_t k = row % classes;
    const std::uint64_t place = row / classes * places + i;
    if (!place_counts(targets[place])) {
      return {};
    }
    const double p = probability_of(logits[place * classes + k], log_sums[place]);
    return is_class(targets[place], k) ? Sum{{p, p, 1}} : Sum{{0, p, 0}};
  }
};

// A class's soft Dice coefficient.
struct DiceFraction {
  double numerator;
  double denominator;

  VDNN_HOST_DEVICE DiceFraction(const Sums<3>& sums, double smooth)
      : numerator(2 * sums.value[0] + smooth), denominator(sums.value[1] + sums.value[2] + smooth) {}
};

// Sums over the samples with a place that counts: the coefficients and their number.
struct DiceCoefficients {
  static constexpr const char* kName = "dice_coefficients";
  using Sum = Sums<2>;
  const Sums<3>* class_sums = nullptr;
  const Sums<1>* place_counts = nullptr;  // of samples
  std::uint64_t classes = 0;
  double smooth = 1;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t, std::uint64_t i) const {
    if (!(place_counts[i / classes].value[0] > 0)) {
      return {};
    }
    const DiceFraction dice(class_sums[i], smooth);
    return {{dice.numerator / dice.denominator, 1}};
  }
};

// Saves the numerators of each sample's classes, then the denominators.
struct StoreDice {
  static constexpr const char* kName = "store_dice";
  const Sums<3>* class_sums = nullptr;
  std::uint64_t classes = 0;
  double smooth = 1;
  float* saved = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const DiceFraction dice(class_sums[i], smooth);
    float* const sample = saved + i / classes * 2 * classes;
    sample[i % classes] = static_cast<float>(dice.numerator);
    sample[classes + i % classes] = static_cast<float>(dice.denominator);
  }
};

// Stores the metrics of a loss. Launched with one element.
struct StoreMetrics {
  static constexpr const char* kName = "store_metrics";
  const Sums<3>* sums = nullptr;
  const Sums<2>* dice = nullptr;  // null: only cross-entropy
  float* metrics = nullptr;
  std::uint64_t elements = 1;

  VDNN_HOST_DEVICE void operator()(std::uint64_t) const {
    const double counted = sums->value[2];
    const double mean = counted > 0 ? sums->value[0] / counted : 0;
    const bool coefficients = dice != nullptr && dice->value[1] > 0;
    const double dice_loss = coefficients ? 1 - dice->value[0] / dice->value[1] : 0;
    metrics[0] = static_cast<float>(mean + dice_loss);
    metrics[1] = static_cast<float>(sums->value[1]);
    metrics[2] = static_cast<float>(counted);
  }
};

// The gradient of the sum of cross-entropy and Dice loss. Each element is a place.
struct DiceGradient {
  static constexpr const char* kName = "dice_gradient";
  const float* probabilities = nullptr;
  const std::int32_t* targets = nullptr;
  const float* dice = nullptr;       // as StoreDice has saved them
  const Sums<2>* counted = nullptr;  // numbers of places and of samples that count
  float* gradient = nullptr;         // may be probabilities
  Divisor places;                    // of a sample
  std::uint64_t classes = 0;
  double weight = 1;
  std::uint64_t elements = 0;  // places of all samples

  VDNN_HOST_DEVICE void operator()(std::uint64_t place) const {
    const float* const p = probabilities + place * classes;
    float* const dx = gradient + place * classes;
    const float* const sample_dice = dice + 2 * places.quotient(place) * classes;
    const std::int32_t target = targets[place];
    double mean_slope = 0;
    for (std::uint64_t k = 0; k < classes; ++k) {
      mean_slope += static_cast<double>(p[k]) * slope(sample_dice, k, is_class(target, k));
    }
    for (std::uint64_t k = 0; k < classes; ++k) {
      const auto each = static_cast<double>(p[k]);
      const double cross_entropy = (each - (is_class(target, k) ? 1 : 0)) / counted->value[0];
      const double dice_part = each * (slope(sample_dice, k, is_class(target, k)) - mean_slope);
      dx[k] = place_counts(target) ? static_cast<float>(weight * (cross_entropy + dice_part)) : 0;
    }
  }

 private:
  // The derivative of the Dice part with respect to p.
  VDNN_HOST_DEVICE double slope(const float* sample_dice, std::uint64_t k, bool hit) const {
    const auto numerator = static_cast<double>(sample_dice[k]);
    const auto denominator = static_cast<double>(sample_dice[classes + k]);
    const double coefficients = counted->value[1] * static_cast<double>(classes);
    return (numerator / denominator - (hit ? 2 : 0)) / denominator / coefficients;
  }
};

}  // namespace vdnn::cuda
