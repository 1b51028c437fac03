#pragma once
// GPUs over any table of CUDA's calls and any library of layers.

#include <functional>
#include <memory>
#include <utility>

#include "src/ops/cuda/cuda_ops.h"
#include "streams/cuda/cuda_api.h"
#include "vdnn/gpu_system.h"

namespace vdnn::cuda {

struct GpuParts {
  std::shared_ptr<CudaApi> api;
  // Makes backends for the calling thread's GPU, like make_cuda_backends().
  std::function<Backends()> make_backends;
  // Makes the library of layers from these backends.
  std::function<std::unique_ptr<OpLibrary>(Backends)> make_ops = [](Backends backends) {
    return make_cuda_ops(std::move(backends));
  };
  // Whether engines are tried before they are offered. Set it to false if kernels compute nothing.
  bool trials = true;
};

// No part may be null.
std::shared_ptr<GpuSystem> make_gpu_system(GpuParts parts);

}  // namespace vdnn::cuda
