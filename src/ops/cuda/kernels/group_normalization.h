#pragma once
// Group normalisation. Sums of each channel of each sample run in double (column_sums.h), where products of
// two floats are exact, which makes mean square minus squared mean a variance. src/ops/cpu has the formulas
// of the gradients.

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/column_sums.h"
#include "src/ops/cuda/kernels/divisor.h"

namespace vdnn::cuda {

// a and a b.
struct Products {
  static constexpr const char* kName = "products";
  using Sum = Sums<2>;
  const float* a = nullptr;
  const float* b = nullptr;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t i) const {
    const auto left = static_cast<double>(a[i]);
    return {{left, left * static_cast<double>(b[i])}};
  }
};

// Of each group of each sample, from its sums of x and x^2. What is saved is what is used.
struct GroupStatistics {
  static constexpr const char* kName = "group_statistics";
  const Sums<2>* sums = nullptr;
  double count = 1;  // elements of a group
  double epsilon = 0;
  float* mean = nullptr;
  float* reciprocal_deviation = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const double exact_mean = sums[i].value[0] / count;
    const double variance = sums[i].value[1] / count - exact_mean * exact_mean;
    mean[i] = static_cast<float>(exact_mean);
    reciprocal_deviation[i] = static_cast<float>(1 / std::sqrt((variance < 0 ? 0 : variance) + epsilon));
  }
};

// Where an element lies.
struct GroupPosition {
  Divisor channels;
  Divisor places;  // of a sample
  Divisor group_channels;
  std::uint64_t groups = 1;

  VDNN_HOST_DEVICE std::uint64_t channel(std::uint64_t i) const { return channels.remainder(i); }
  // Counted over the batch.
  VDNN_HOST_DEVICE std::uint64_t group(std::uint64_t i) const {
    const std::uint64_t place = channels.quotient(i);
    return places.quotient(place) * groups + group_channels.quotient(i - place * channels.value());
  }
};

struct GroupNormalize {
  static constexpr const char* kName = "group_normalize";
  const float* x = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* reciprocal_deviation = nullptr;
  float* y = nullptr;
  GroupPosition position;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t group = position.group(i);
    const std::uint64_t channel = position.channel(i);
    y[i] = (x[i] - mean[group]) * (reciprocal_deviation[group] * scale[channel]) + shift[channel];
  }
};

// What backward has of each channel of each sample, from the sums of dY and dY x: those of dY and dY z.
struct ChannelGradients {
  const Sums<2>* sums = nullptr;
  const float* mean = nullptr;
  const float* reciprocal_deviation = nullptr;

  VDNN_HOST_DEVICE Sums<2> operator()(std::uint64_t channel, std::uint64_t group) const {
    const double of_dy = sums[channel].value[0];
    const double of_product = sums[channel].value[1] - static_cast<double>(mean[group]) * of_dy;
    return {{of_dy, of_product * static_cast<double>(reciprocal_deviation[group])}};
  }
};

struct ScaleAndShiftGradients {
  static constexpr const char* kName = "scale_and_shift_gradients";
  ChannelGradients gradients;
  std::uint64_t samples = 0;
  std::uint64_t group_channels = 1;
  float* scale_gradient = nullptr;
  float* shift_gradient = nullptr;
  std::uint64_t elements = 0;  // channels

  VDNN_HOST_DEVICE void operator()(std::uint64_t channel) const {
    Sums<2> sum;
    for (std::uint64_t sample = 0; sample < samples; ++sample) {
      const std::uint64_t i = sample * elements + channel;
      sum.add(gradients(i, i / group_channels));
    }
    scale_gradient[channel] = static_cast<float>(sum.value[1]);
    shift_gradient[channel] = static_cast<float>(sum.value[0]);
  }
};

// Of each group of each sample, over its channels: scale dY and scale dY z.
struct ScaledGradients {
  static constexpr const char* kName = "scaled_gradients";
  using Sum = Sums<2>;
  ChannelGradients gradients;
  const float* scale = nullptr;
  std::uint64_t groups = 1;
  std::uint64_t group_channels = 1;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t group, std::uint64_t i) const {
    const Sums<2> of = gradients(group * group_channels + i, group);
    const auto factor = static_cast<double>(scale[group % groups * group_channels + i]);
    return {{factor * of.value[0], factor * of.value[1]}};
  }
};

// dX = r scale dY + (of_x (x - mean) + constant).
struct GroupCoefficients {
  static constexpr const char* kName = "group_coefficients";
  const Sums<2>* sums = nullptr;  // ScaledGradients
  const float* reciprocal_deviation = nullptr;
  double count = 1;  // elements of a group
  float* of_x = nullptr;
  float* constant = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto r = static_cast<double>(reciprocal_deviation[i]);
    of_x[i] = static_cast<float>(-r * r * (sums[i].value[1] / count));
    constant[i] = static_cast<float>(-r * (sums[i].value[0] / count));
  }
};

struct GroupGradient {
  static constexpr const char* kName = "group_gradient";
  const float* x = nullptr;
  const float* mean = nullptr;
  const float* reciprocal_deviation = nullptr;
  const float* of_x = nullptr;
  const float* constant = nullptr;
  const float* dy = nullptr;
  const float* scale = nullptr;
  float* dx = nullptr;  // may be dy
  GroupPosition position;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t group = position.group(i);
    const float of_dy = reciprocal_deviation[group] * scale[position.channel(i)];
    dx[i] = of_dy * dy[i] + (of_x[group] * (x[i] - mean[group]) + constant[group]);
  }
};

}  // namespace vdnn::cuda
