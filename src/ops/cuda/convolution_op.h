#pragma once
// A convolution on one of cuDNN's engines. It is defined in convolution_engines.cpp, the only source that
// includes cudnn-frontend.

#include <memory>
#include <mutex>
#include <string>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/vendor_library.h"

namespace vdnn::cuda {

// Handle and mutex must outlive the op.
struct SharedCudnnHandle {
  void* handle = nullptr;       // a cudnnHandle_t
  std::mutex* mutex = nullptr;  // held while the handle is used
};

// Throws NoEngine if cuDNN does not list the engine for this handle's GPU, or cannot build it.
std::unique_ptr<VendorOp> make_convolution_op(const SharedCudnnHandle& shared, const EngineQuestion& question,
                                              const std::string& engine);

}  // namespace vdnn::cuda
