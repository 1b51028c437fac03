#include "src/ops/cuda/known_gpus.h"

#include <algorithm>

#include "src/ops/cuda/convolution_engines.h"
#include "src/ops/cuda/recorded_engines.h"

namespace vdnn::cuda {

std::unique_ptr<EngineSource> engines_of_gpu(std::string_view name) {
  const auto gpu = std::ranges::find(known_gpus(), name, &KnownGpu::name);
  if (gpu == known_gpus().end()) {
    return nullptr;
  }
  try {
    return std::make_unique<ConvolutionEngines>(gpu->cudnn_properties);
  } catch (const DeviceError&) {
    // There is no cuDNN, or it cannot plan without a device.
  }
  return std::make_unique<RecordedEngines>(gpu->recorded_engines);
}

}  // namespace vdnn::cuda
