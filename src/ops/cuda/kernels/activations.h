#pragma once
// ReLU, sigmoid and sums, in place as well. NaN passes through; gradients are told by Y (see
// src/ops/cpu/elementwise.cpp).

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

// A slope of 0 apart: zero times an infinity would be none.
VDNN_HOST_DEVICE inline float below_zero(float slope, float value) {
  return slope == 0 ? 0.0F : slope * value;
}

struct ReluForward {
  static constexpr const char* kName = "relu_forward";
  const float* x = nullptr;
  float* y = nullptr;
  float slope = 0;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    y[i] = x[i] < 0 ? below_zero(slope, x[i]) : x[i];
  }
};

struct ReluBackward {
  static constexpr const char* kName = "relu_backward";
  const float* y = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;
  float slope = 0;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    dx[i] = y[i] <= 0 ? below_zero(slope, dy[i]) : dy[i];
  }
};

// The exponential is of -|x|: never large, so that small results keep their accuracy.
struct SigmoidForward {
  static constexpr const char* kName = "sigmoid_forward";
  const float* x = nullptr;
  float* y = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float power = std::exp(-std::abs(x[i]));
    y[i] = (x[i] < 0 ? power : 1.0F) / (1.0F + power);
  }
};

struct SigmoidBackward {
  static constexpr const char* kName = "sigmoid_backward";
  const float* y = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const { dx[i] = dy[i] * (y[i] * (1.0F - y[i])); }
};

struct Addition {
  static constexpr const char* kName = "addition";
  const float* a = nullptr;
  const float* b = nullptr;
  float* sum = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const { sum[i] = a[i] + b[i]; }
};

}  // namespace vdnn::cuda
