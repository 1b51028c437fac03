#pragma once
// Chooses an engine by limits; tests judge lists of engines by this choice.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "src/ops/cuda/engine_choice.h"

namespace vdnn::cuda {

// The position of the first engine within the limits.
inline std::optional<std::size_t> choose_engine(std::span<const Engine> fastest_first,
                                                const EngineLimits& limits) {
  const auto found =
      std::ranges::find_if(fastest_first, [&](const Engine& engine) { return permits(limits, engine); });
  if (found == fastest_first.end()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(found - fastest_first.begin());
}

}  // namespace vdnn::cuda
