#pragma once
// Kernels that batch normalisation needs in addition to those of group normalisation (group_normalization.h).

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/group_normalization.h"

namespace vdnn::cuda {

// Computes each channel's statistics from its sums of x and x^2. The variance is divided by n.
struct BatchStatistics {
  static constexpr const char* kName = "batch_statistics";
  const Sums<2>* sums = nullptr;
  double count = 1;  // elements of a channel
  float* mean = nullptr;
  float* variance = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const double exact_mean = sums[i].value[0] / count;
    const double exact_variance = sums[i].value[1] / count - exact_mean * exact_mean;
    mean[i] = static_cast<float>(exact_mean);
    variance[i] = static_cast<float>(exact_variance < 0 ? 0 : exact_variance);
  }
};

struct ReciprocalDeviations {
  static constexpr const char* kName = "reciprocal_deviations";
  const float* variance = nullptr;
  double epsilon = 0;
  float* reciprocal_deviation = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    reciprocal_deviation[i] = static_cast<float>(1 / std::sqrt(static_cast<double>(variance[i]) + epsilon));
  }
};

// moved = running + momentum (factor batch - running). The kernel may work in place.
struct FollowStatistic {
  static constexpr const char* kName = "follow_statistic";
  const float* batch = nullptr;
  const float* running = nullptr;
  float* moved = nullptr;
  float momentum = 0;
  float factor = 1;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    moved[i] = running[i] + momentum * (factor * batch[i] - running[i]);
  }
};

// The following kernels are for batches over several ranks (ops/standard_recipes.h). They have one element
// per channel.

struct MeanShare {
  static constexpr const char* kName = "mean_share";
  const float* own_mean = nullptr;
  double ranks = 1;
  float* share = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    share[i] = static_cast<float>(static_cast<double>(own_mean[i]) / ranks);
  }
};

struct VarianceShare {
  static constexpr const char* kName = "variance_share";
  const float* mean = nullptr;
  const float* own_mean = nullptr;
  const float* own_variance = nullptr;
  double ranks = 1;
  float* share = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const double off = static_cast<double>(own_mean[i]) - static_cast<double>(mean[i]);
    share[i] = static_cast<float>((static_cast<double>(own_variance[i]) + off * off) / ranks);
  }
};

struct GradientMeans {
  static constexpr const char* kName = "gradient_means";
  const float* scale_gradient = nullptr;
  const float* shift_gradient = nullptr;
  double count = 1;        // elements of a channel on all ranks
  float* means = nullptr;  // the means of dY, then those of dY z
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    means[i] = static_cast<float>(static_cast<double>(shift_gradient[i]) / count);
    means[elements + i] = static_cast<float>(static_cast<double>(scale_gradient[i]) / count);
  }
};

// The coefficients of GroupGradient.
struct MeanCoefficients {
  static constexpr const char* kName = "mean_coefficients";
  const float* means = nullptr;
  const float* scale = nullptr;
  const float* reciprocal_deviation = nullptr;
  float* of_x = nullptr;
  float* constant = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto r = static_cast<double>(reciprocal_deviation[i]);
    const double of_dy = r * static_cast<double>(scale[i]);
    of_x[i] = static_cast<float>(-of_dy * r * static_cast<double>(means[elements + i]));
    constant[i] = static_cast<float>(-of_dy * static_cast<double>(means[i]));
  }
};

}  // namespace vdnn::cuda
