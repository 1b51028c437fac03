#pragma once
// The GPUs whose engines can be told without one: `share/devices/` has the properties that cuDNN asks for,
// `share/engines/` what it said of them. Both are part of the library, so that it finds them wherever it is
// installed.

#include <memory>
#include <span>
#include <string_view>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

struct KnownGpu {
  std::string_view name;  // as `sim:NAME` spells it
  std::string_view cudnn_properties;
  std::string_view recorded_engines;
};

std::span<const KnownGpu> known_gpus();

// cuDNN where it can be loaded, else what is recorded; null for a GPU of which nothing is known.
std::unique_ptr<EngineSource> engines_of_gpu(std::string_view name);

}  // namespace vdnn::cuda
