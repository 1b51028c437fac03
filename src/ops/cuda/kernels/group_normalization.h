#pragma once
// Group normalisation. Sums of each channel of each sample are in double (column_sums.h). Products of two
// floats are exact in double, so the mean square minus the squared mean is an accurate variance. src/ops/cpu
// has the formulas of the gradients. Maps have any format, everything else is fp32.

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/column_sums.h"
#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/packs.h"

namespace vdnn::cuda {

// The terms of the sums of `a` and of the products `a * b`.
template <class Format>
struct Products {
  static constexpr const char* kName = "products";
  using Sum = Sums<2>;
  const Stored<Format>* a = nullptr;
  const Stored<Format>* b = nullptr;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t i) const {
    const auto left = static_cast<double>(widen<Format>(a[i]));
    return {{left, left * static_cast<double>(widen<Format>(b[i]))}};
  }
};
template <class Format>
using ProductSums = ColumnSums<Products<Format>>;

// Computes each group's statistics for each sample from the sums of x and x^2. The forward pass uses the
// rounded values that it saves.
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

// The positions of a pack's elements, whose channels are neighbours.
template <std::uint32_t kCount>
struct GroupedPack {
  std::uint64_t first_channel = 0;
  std::uint64_t groups[kCount] = {};  // counted over the batch
  bool groups_of_one = false;         // each channel is a group, as in batch normalisation

  VDNN_HOST_DEVICE Floats<kCount> of_channels(const float* values) const {
    return load<Fp32>(values, Pack<kCount>{first_channel});
  }
  VDNN_HOST_DEVICE Floats<kCount> of_groups(const float* values) const {
    if (groups_of_one) {
      return load<Fp32>(values, Pack<kCount>{groups[0]});
    }
    Floats<kCount> gathered;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      gathered[i] = values[groups[i]];
    }
    return gathered;
  }
};

struct GroupPosition {
  Divisor channels;
  Divisor places;  // of a sample
  Divisor group_channels;
  std::uint64_t groups = 1;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE GroupedPack<kCount> of(Pack<kCount> pack) const {
    const std::uint64_t place = channels.quotient(pack.first);
    const std::uint64_t first_group = places.quotient(place) * groups;
    GroupedPack<kCount> grouped;
    grouped.first_channel = pack.first - place * channels.value();
    for (std::uint32_t i = 0; i < kCount; ++i) {
      grouped.groups[i] = first_group + group_channels.quotient(grouped.first_channel + i);
    }
    grouped.groups_of_one = group_channels.value() == 1;
    return grouped;
  }
};

template <class Format>
struct GroupNormalize {
  static constexpr const char* kName = "group_normalize";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* reciprocal_deviation = nullptr;
  Stored<Format>* y = nullptr;
  GroupPosition position;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE bool in_packs() const { return position.channels.value() % kPack == 0; }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const GroupedPack<kCount> grouped = position.of(pack);
    const Floats<kCount> from = load<Format>(x, pack);
    const Floats<kCount> centre = grouped.of_groups(mean);
    const Floats<kCount> deviation = grouped.of_groups(reciprocal_deviation);
    const Floats<kCount> factor = grouped.of_channels(scale);
    const Floats<kCount> added = grouped.of_channels(shift);
    store<Format>(y, pack, [&](std::uint32_t i) {
      return (from[i] - centre[i]) * (deviation[i] * factor[i]) + added[i];
    });
  }
};

// For each channel of each sample, computes the sums of dY and dY z from the sums of dY and dY x.
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

// Sums over the channels of each group of each sample: scale dY and scale dY z.
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

// Computes the coefficients of_x and constant of dX = r scale dY + (of_x (x - mean) + constant).
struct GroupCoefficients {
  static constexpr const char* kName = "group_coefficients";
  const Sums<2>* sums = nullptr;  // the sums of ScaledGradients
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

template <class Format>
struct GroupGradient {
  static constexpr const char* kName = "group_gradient";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  const float* mean = nullptr;
  const float* reciprocal_deviation = nullptr;
  const float* of_x = nullptr;
  const float* constant = nullptr;
  const Stored<Format>* dy = nullptr;
  const float* scale = nullptr;
  Stored<Format>* dx = nullptr;  // may be dy
  GroupPosition position;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE bool in_packs() const { return position.channels.value() % kPack == 0; }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const GroupedPack<kCount> grouped = position.of(pack);
    const Floats<kCount> from = load<Format>(x, pack);
    const Floats<kCount> gradient = load<Format>(dy, pack);
    const Floats<kCount> centre = grouped.of_groups(mean);
    const Floats<kCount> deviation = grouped.of_groups(reciprocal_deviation);
    const Floats<kCount> slope = grouped.of_groups(of_x);
    const Floats<kCount> added = grouped.of_groups(constant);
    const Floats<kCount> factor = grouped.of_channels(scale);
    store<Format>(dx, pack, [&](std::uint32_t i) {
      return deviation[i] * factor[i] * gradient[i] + (slope[i] * (from[i] - centre[i]) + added[i]);
    });
  }
};

}  // namespace vdnn::cuda
