#pragma once
// ReLU, sigmoid and sums. They may work in place. A NaN in X gives a NaN in Y. Gradients are computed from Y
// (see src/ops/cpu/elementwise.cpp).

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/packs.h"

namespace vdnn::cuda {

// A slope of 0 is a separate case: zero times infinity would be NaN.
VDNN_HOST_DEVICE inline float below_zero(float slope, float value) {
  return slope == 0 ? 0.0F : slope * value;
}

template <class Format>
struct ReluForward {
  static constexpr const char* kName = "relu_forward";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  Stored<Format>* y = nullptr;
  float slope = 0;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Floats<kCount> from = load<Format>(x, pack);
    store<Format>(y, pack,
                  [&](std::uint32_t i) { return from[i] < 0 ? below_zero(slope, from[i]) : from[i]; });
  }
};

template <class Format>
struct ReluBackward {
  static constexpr const char* kName = "relu_backward";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* y = nullptr;
  const Stored<Format>* dy = nullptr;
  Stored<Format>* dx = nullptr;
  float slope = 0;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Floats<kCount> made = load<Format>(y, pack);
    const Floats<kCount> gradient = load<Format>(dy, pack);
    store<Format>(dx, pack, [&](std::uint32_t i) {
      return made[i] <= 0 ? below_zero(slope, gradient[i]) : gradient[i];
    });
  }
};

// The exponential of -|x| is never large, so that small results keep their accuracy.
template <class Format>
struct SigmoidForward {
  static constexpr const char* kName = "sigmoid_forward";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  Stored<Format>* y = nullptr;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Floats<kCount> from = load<Format>(x, pack);
    store<Format>(y, pack, [&](std::uint32_t i) {
      const float power = std::exp(-std::abs(from[i]));
      return (from[i] < 0 ? power : 1.0F) / (1.0F + power);
    });
  }
};

template <class Format>
struct SigmoidBackward {
  static constexpr const char* kName = "sigmoid_backward";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* y = nullptr;
  const Stored<Format>* dy = nullptr;
  Stored<Format>* dx = nullptr;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Floats<kCount> made = load<Format>(y, pack);
    const Floats<kCount> gradient = load<Format>(dy, pack);
    store<Format>(dx, pack, [&](std::uint32_t i) { return gradient[i] * (made[i] * (1.0F - made[i])); });
  }
};

template <class Format>
struct Addition {
  static constexpr const char* kName = "addition";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* a = nullptr;
  const Stored<Format>* b = nullptr;
  Stored<Format>* sum = nullptr;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Floats<kCount> left = load<Format>(a, pack);
    const Floats<kCount> right = load<Format>(b, pack);
    store<Format>(sum, pack, [&](std::uint32_t i) { return left[i] + right[i]; });
  }
};

}  // namespace vdnn::cuda
