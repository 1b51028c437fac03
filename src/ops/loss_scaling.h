#pragma once
// The arithmetic of dynamic loss scaling, shared by all devices; see LossScaling. On a GPU, kernels call
// these functions.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/base/host_device.h"
#include "vdnn/op_spec.h"

namespace vdnn::ops {

// `norm`: the norm of the scaled gradients.
VDNN_HOST_DEVICE inline LossScaledNorm unscaled(double norm, double max_norm, const LossScale& state) {
  const double own_norm = norm / static_cast<double>(state.scale);
  const bool overflow = !std::isfinite(norm);
  const double clipping = overflow ? 0 : std::min(1.0, max_norm / (own_norm + 1e-6));
  return {.norm = static_cast<float>(own_norm),
          .scale = static_cast<float>(clipping / static_cast<double>(state.scale)),
          .skips = overflow ? 1.0F : 0.0F,
          .loss_scale = state.scale,
          .skipped_steps = state.skipped_steps};
}

VDNN_HOST_DEVICE inline LossScale next(const LossScaling& scaling, LossScale state, bool skipped) {
  if (skipped) {
    // Without a lower limit the scale would become zero, and updates divide by it.
    return {.scale = std::max(state.scale * scaling.backoff, 0x1p-126F),
            .good_steps = 0,
            .skipped_steps = state.skipped_steps + 1};
  }
  state.good_steps += 1;
  if (state.good_steps >= static_cast<float>(scaling.growth_interval)) {
    state.good_steps = 0;
    // If the scale became infinite, every later step would be skipped.
    const float grown = state.scale * scaling.growth;
    state.scale = std::isfinite(grown) ? grown : state.scale;
  }
  return state;
}

// True if a smaller scale may help after a skipped step. The scale does not change the forward pass. So if
// the loss is not finite, smaller scales are tried only until the scale reaches 1.
inline bool may_be_mended(float scale, bool finite_loss) {
  return scale >= kLeastLossScale && (finite_loss || scale > 1);
}

// True if a training run can have this state after `steps` steps. Validates states that were read from files.
inline bool is_possible(const LossScale& state, std::uint64_t steps) {
  const auto is_count = [](float number) {
    return number >= 0 && number <= 0x1p24F && number == std::floor(number);
  };
  return std::isfinite(state.scale) && state.scale >= 0x1p-126F && is_count(state.good_steps) &&
         is_count(state.skipped_steps) && static_cast<std::uint64_t>(state.skipped_steps) <= steps;
}

}  // namespace vdnn::ops
