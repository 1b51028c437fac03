#pragma once
// The arithmetic of dynamic loss scaling, whatever the device; see LossScaling.

#include <algorithm>
#include <cmath>

#include "vdnn/op_spec.h"

namespace vdnn::ops {

// `norm`: of the gradients as they are.
inline LossScaledNorm unscaled(double norm, double max_norm, const LossScale& state) {
  const double own_norm = norm / static_cast<double>(state.scale);
  const bool overflow = !std::isfinite(norm);
  const double clipping = overflow ? 0 : std::min(1.0, max_norm / (own_norm + 1e-6));
  return {.norm = static_cast<float>(own_norm),
          .scale = static_cast<float>(clipping / static_cast<double>(state.scale)),
          .skips = overflow ? 1.0F : 0.0F,
          .loss_scale = state.scale,
          .skipped_steps = state.skipped_steps};
}

inline LossScale next(const LossScaling& scaling, LossScale state, bool skipped) {
  if (skipped) {
    return {
        .scale = state.scale * scaling.backoff, .good_steps = 0, .skipped_steps = state.skipped_steps + 1};
  }
  state.good_steps += 1;
  if (state.good_steps >= static_cast<float>(scaling.growth_interval)) {
    state.good_steps = 0;
    // A scale that has become infinite would skip every step from then on.
    const float grown = state.scale * scaling.growth;
    state.scale = std::isfinite(grown) ? grown : state.scale;
  }
  return state;
}

}  // namespace vdnn::ops
