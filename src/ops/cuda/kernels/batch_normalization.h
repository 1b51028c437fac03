#pragma once
// What batch normalisation has beside the kernels of group normalisation (group_normalization.h).

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/group_normalization.h"

namespace vdnn::cuda {

// Of each channel, from its sums of x and x^2; the variance is over n.
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

// running + momentum (factor batch - running), in place as well.
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

}  // namespace vdnn::cuda
