#pragma once
// Optimizers and gradient accumulation over a parameter as it is stored, in place; `norm` (where gradients
// are clipped) is the gradients' norm and scale.

#include <cmath>
#include <cstdint>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cuda/kernels/per_step.h"

namespace vdnn::cuda {

struct Sgd {
  static constexpr const char* kName = "sgd";
  const float* w = nullptr;
  const float* g = nullptr;
  const float* m = nullptr;
  const float* norm = nullptr;
  float* new_w = nullptr;
  float* new_m = nullptr;
  SgdSpec spec;
  PerStep<StepScalars> scalars;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float scale = norm == nullptr ? 1.0F : norm[1];
    const float momentum = spec.momentum * m[i] + (scale * g[i] + spec.weight_decay * w[i]);
    const float moved = w[i] - scalars.get().learning_rate * momentum;
    new_m[i] = momentum;
    new_w[i] = moved;
  }
};

// Adam and AdamW; adam_coefficients.h has the formula.
struct Adam {
  static constexpr const char* kName = "adam";
  const float* w = nullptr;
  const float* g = nullptr;
  const float* m = nullptr;
  const float* v = nullptr;
  const float* norm = nullptr;
  float* new_w = nullptr;
  float* new_m = nullptr;
  float* new_v = nullptr;
  PerStep<ops::AdamCoefficients> coefficients;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const ops::AdamCoefficients& c = coefficients.get();
    const float scale = norm == nullptr ? 1.0F : norm[1];
    const float gradient = scale * g[i] + c.gradient_decay * w[i];
    const float first = m[i] + c.gain1 * (gradient - m[i]);
    const float second = v[i] + c.gain2 * (gradient * gradient - v[i]);
    const float decayed = w[i] - c.parameter_decay * w[i];
    const float moved = decayed - c.step_size * (first / (std::sqrt(second) * c.root_scale + c.epsilon));
    new_m[i] = first;
    new_v[i] = second;
    new_w[i] = moved;
  }
};

// Gradient accumulation.
struct GradientSum {
  static constexpr const char* kName = "gradient_sum";
  const float* gradient = nullptr;
  const float* sum = nullptr;
  float* new_sum = nullptr;
  PerStep<StepScalars> scalars;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    new_sum[i] = scalars.get().micro_step == 0 ? gradient[i] : sum[i] + gradient[i];
  }
};

}  // namespace vdnn::cuda
