// Replaces convolution_engines.cpp if CMake found no cuDNN or no cudnn-frontend.

#include "src/ops/cuda/convolution_engines.h"

namespace vdnn::cuda {

struct ConvolutionEngines::Device {};

std::string cudnn_version() {
  throw DeviceError("built without cuDNN");
}

std::string cudnn_frontend_version() {
  throw DeviceError("built without cuDNN");
}

ConvolutionEngines::ConvolutionEngines(std::string_view /*device_properties*/) {
  throw DeviceError("built without cuDNN");
}

ConvolutionEngines::~ConvolutionEngines() = default;

std::vector<Engine> ConvolutionEngines::do_list(const EngineQuestion& question) const {
  throw NoEngine(question, "built without cuDNN");
}

std::vector<Dims> ConvolutionEngines::operand_shapes(const EngineQuestion& question) const {
  throw NoEngine(question, "built without cuDNN");
}

std::string ConvolutionEngines::name() const {
  return "cudnn";
}

std::unique_ptr<const EngineSource> engines_of_this_gpu(int) {
  throw DeviceError("built without cuDNN");
}

}  // namespace vdnn::cuda
