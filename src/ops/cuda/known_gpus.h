#pragma once
// The GPUs whose engines are known on machines without the GPU. `share/devices/` has the device properties
// that cuDNN needs, and `share/engines/` has cuDNN's recorded answers. Both are compiled into the library, so
// that lookups do not depend on where the library is installed.

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

// Returns cuDNN if it can be loaded, otherwise its recorded answers. Returns null for an unknown GPU.
std::unique_ptr<EngineSource> engines_of_gpu(std::string_view name);

}  // namespace vdnn::cuda
