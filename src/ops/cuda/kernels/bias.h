#pragma once
// What a layer with filters adds to each channel, and its gradient: a sum over places and samples.

#include <cstdint>

#include "src/ops/cuda/kernels/column_sums.h"
#include "src/ops/cuda/kernels/divisor.h"

namespace vdnn::cuda {

struct BiasAddition {
  static constexpr const char* kName = "bias_addition";
  const float* x = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;  // may be x
  Divisor channels;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const { y[i] = x[i] + bias[channels.remainder(i)]; }
};

struct BiasTerm {
  static constexpr const char* kName = "bias_gradient";
  using Sum = Sums<1>;
  const float* dy = nullptr;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t i) const { return {{static_cast<double>(dy[i])}}; }
};

struct RoundSums {
  static constexpr const char* kName = "round_sums";
  const Sums<1>* sums = nullptr;
  float* rounded = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    rounded[i] = static_cast<float>(sums[i].value[0]);
  }
};

}  // namespace vdnn::cuda
