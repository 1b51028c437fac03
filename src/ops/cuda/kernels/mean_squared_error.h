#pragma once
// Mean squared error. The sum is computed in double, and the gradient, (2 weight / elements) (x - t), in
// single precision.

#include <cstdint>

#include "src/ops/cuda/kernels/row_sums.h"

namespace vdnn::cuda {

struct SquaredDifference {
  static constexpr const char* kName = "squared_difference";
  using Sum = Sums<1>;
  const float* x = nullptr;
  const float* t = nullptr;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t, std::uint64_t i) const {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(t[i]);
    return {{difference * difference}};
  }
};

// Launched with one element.
struct StoreSquaredError {
  static constexpr const char* kName = "store_squared_error";
  const Sums<1>* sum = nullptr;
  double count = 1;
  float* metrics = nullptr;
  std::uint64_t elements = 1;

  VDNN_HOST_DEVICE void operator()(std::uint64_t) const {
    metrics[0] = static_cast<float>(sum->value[0] / count);
    metrics[1] = 0;
    metrics[2] = static_cast<float>(count);
  }
};

struct ScaledDifference {
  static constexpr const char* kName = "scaled_difference";
  const float* x = nullptr;
  const float* t = nullptr;
  float* dx = nullptr;  // may be x
  float factor = 0;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const { dx[i] = factor * (x[i] - t[i]); }
};

}  // namespace vdnn::cuda
