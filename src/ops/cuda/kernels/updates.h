#pragma once
// Optimizers and gradient accumulation, in place, on parameters and gradients in their storage layout. An
// update that loss scaling skips changes nothing.

#include <cmath>
#include <cstdint>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cuda/kernels/loss_scaling.h"
#include "src/ops/cuda/kernels/packs.h"
#include "src/ops/cuda/kernels/per_step.h"
#include "vdnn/tensor.h"

namespace vdnn::cuda {

// The copy of a parameter in a narrow type.
struct ParameterCopy {
  std::uint16_t* bits = nullptr;  // null: there is none
  DataType type = DataType::kF16;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void write(Pack<kCount> pack, const Floats<kCount>& parameter) const {
    if (bits == nullptr) {
      return;
    }
    if (type == DataType::kF16) {
      store<Fp16>(bits, pack, parameter);
    } else {
      store<Bf16>(bits, pack, parameter);
    }
  }
};

struct Sgd {
  static constexpr const char* kName = "sgd";
  static constexpr std::uint32_t kPack = kPackOf<Fp32>;
  const float* w = nullptr;
  const float* g = nullptr;
  const float* m = nullptr;
  GradientScale gradient_scale;
  float* new_w = nullptr;
  float* new_m = nullptr;
  ParameterCopy copy;
  SgdSpec spec;
  PerStep<StepScalars> scalars;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    if (gradient_scale.skips()) {
      return;
    }
    const float scale = gradient_scale.get();
    const float learning_rate = scalars.get().learning_rate;
    const Floats<kCount> weight = load<Fp32>(w, pack);
    const Floats<kCount> gradient = load<Fp32>(g, pack);
    Floats<kCount> momentum = load<Fp32>(m, pack);
    Floats<kCount> moved;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      momentum[i] = spec.momentum * momentum[i] + (scale * gradient[i] + spec.weight_decay * weight[i]);
      moved[i] = weight[i] - learning_rate * momentum[i];
    }
    store<Fp32>(new_m, pack, momentum);
    store<Fp32>(new_w, pack, moved);
    copy.write(pack, moved);
  }
};

// Adam and AdamW; adam_coefficients.h has the formula. Only the device knows how many steps were skipped. If
// steps were skipped, one thread of each block recomputes the coefficients; otherwise the host's coefficients
// are used.
struct Adam {
  static constexpr const char* kName = "adam";
  static constexpr std::uint32_t kPack = kPackOf<Fp32>;
  using Shared = ops::AdamCoefficients;
  const float* w = nullptr;
  const float* g = nullptr;
  const float* m = nullptr;
  const float* v = nullptr;
  GradientScale gradient_scale;
  float* new_w = nullptr;
  float* new_m = nullptr;
  float* new_v = nullptr;
  ParameterCopy copy;
  AdamSpec spec;
  PerStep<StepScalars> scalars;
  PerStep<ops::AdamCoefficients> coefficients;  // valid if no step has been skipped
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void prepare(Shared& shared) const {
    const std::uint64_t skipped = gradient_scale.skipped_steps();
    if (skipped == 0) {
      shared = coefficients.get();
      return;
    }
    StepScalars counted = scalars.get();
    counted.step -= skipped;
    shared = ops::AdamCoefficients(spec, counted);
  }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack, const Shared& c) const {
    if (gradient_scale.skips()) {
      return;
    }
    const float scale = gradient_scale.get();
    const Floats<kCount> weight = load<Fp32>(w, pack);
    const Floats<kCount> raw = load<Fp32>(g, pack);
    Floats<kCount> first = load<Fp32>(m, pack);
    Floats<kCount> second = load<Fp32>(v, pack);
    Floats<kCount> moved;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const float gradient = scale * raw[i] + c.gradient_decay * weight[i];
      first[i] = first[i] + c.gain1 * (gradient - first[i]);
      second[i] = second[i] + c.gain2 * (gradient * gradient - second[i]);
      const float decayed = weight[i] - c.parameter_decay * weight[i];
      moved[i] = decayed - c.step_size * (first[i] / (std::sqrt(second[i]) * c.root_scale + c.epsilon));
    }
    store<Fp32>(new_m, pack, first);
    store<Fp32>(new_v, pack, second);
    store<Fp32>(new_w, pack, moved);
    copy.write(pack, moved);
  }
};

// Gradient accumulation.
struct GradientSum {
  static constexpr const char* kName = "gradient_sum";
  static constexpr std::uint32_t kPack = kPackOf<Fp32>;
  const float* gradient = nullptr;
  const float* sum = nullptr;
  float* new_sum = nullptr;
  PerStep<StepScalars> scalars;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    Floats<kCount> summed = load<Fp32>(gradient, pack);
    if (scalars.get().micro_step != 0) {
      const Floats<kCount> so_far = load<Fp32>(sum, pack);
      for (std::uint32_t i = 0; i < kCount; ++i) {
        summed[i] = so_far[i] + summed[i];
      }
    }
    store<Fp32>(new_sum, pack, summed);
  }
};

}  // namespace vdnn::cuda
