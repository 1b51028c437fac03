#pragma once
// Dynamic loss scaling. The scale, and the decision whether to skip a step, stay on the device.
// ops/loss_scaling.h has the arithmetic.

#include <cstdint>

#include "src/ops/cuda/kernels/packs.h"
#include "src/ops/cuda/kernels/row_sums.h"
#include "src/ops/loss_scaling.h"

namespace vdnn::cuda {

// Scales the gradient map of a loss; may work in place.
struct ScaledGradientMap {
  static constexpr const char* kName = "scaled_gradient_map";
  static constexpr std::uint32_t kPack = kPackOf<Fp32>;
  const float* gradient = nullptr;
  const LossScale* scale = nullptr;
  float* scaled = nullptr;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const float factor = scale->scale;
    const Floats<kCount> from = load<Fp32>(gradient, pack);
    store<Fp32>(scaled, pack, [&](std::uint32_t i) { return factor * from[i]; });
  }
};

// Stores a LossScaledNorm, computed from the scaled gradients' sum of squares. Launched with one element.
struct StoreLossScaledNorm {
  static constexpr const char* kName = "store_loss_scaled_norm";
  const Sums<1>* sum = nullptr;
  double max_norm = 1;
  const LossScale* scale = nullptr;
  LossScaledNorm* result = nullptr;
  std::uint64_t elements = 1;

  VDNN_HOST_DEVICE void operator()(std::uint64_t) const {
    *result = ops::unscaled(std::sqrt(sum->value[0]), max_norm, *scale);
  }
};

// Computes the next loss scale. Launched with one element; may work in place.
struct LossScaleUpdate {
  static constexpr const char* kName = "loss_scale_update";
  LossScaling scaling;
  const LossScale* scale = nullptr;
  const LossScaledNorm* norm = nullptr;
  LossScale* updated = nullptr;
  std::uint64_t elements = 1;

  VDNN_HOST_DEVICE void operator()(std::uint64_t) const {
    *updated = ops::next(scaling, *scale, norm->skips != 0);
  }
};

// The factor by which an update multiplies its gradient: 1, or the factor stored with the norm of
// all gradients.
struct GradientScale {
  const float* norm = nullptr;                  // the norm and the scale; set if gradients are clipped
  const LossScaledNorm* loss_scaled = nullptr;  // set if losses are scaled

  VDNN_HOST_DEVICE float get() const {
    if (loss_scaled != nullptr) {
      return loss_scaled->scale;
    }
    return norm == nullptr ? 1.0F : norm[1];
  }
  // True if gradients have overflowed, so that nothing is updated.
  VDNN_HOST_DEVICE bool skips() const { return loss_scaled != nullptr && loss_scaled->skips != 0; }
  // The number of earlier skipped steps, which the optimizer does not count.
  VDNN_HOST_DEVICE std::uint64_t skipped_steps() const {
    return loss_scaled == nullptr ? 0 : static_cast<std::uint64_t>(loss_scaled->skipped_steps);
  }
};

}  // namespace vdnn::cuda
