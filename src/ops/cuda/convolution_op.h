#pragma once
// A convolution by one of cuDNN's engines, to be run. It is beside the engines (convolution_engines.cpp),
// which alone includes cudnn-frontend.

#include <memory>
#include <string>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/vendor_library.h"

namespace vdnn::cuda {

// `handle`: a cudnnHandle_t, which outlives it. Throws NoEngine where cuDNN does not list the engine for this
// handle's GPU, or cannot build it.
std::unique_ptr<VendorOp> make_convolution_op(void* handle, const EngineQuestion& question,
                                              const std::string& engine);

}  // namespace vdnn::cuda
