#pragma once
// GPUs by any table of CUDA's calls, with any library of layers on them.

#include <functional>
#include <memory>
#include <utility>

#include "src/ops/cuda/cuda_ops.h"
#include "streams/cuda/cuda_api.h"
#include "vdnn/gpu_system.h"

namespace vdnn::cuda {

struct GpuParts {
  std::shared_ptr<CudaApi> api;
  // For the calling thread's GPU, as make_cuda_backends().
  std::function<Backends()> make_backends;
  // Of these.
  std::function<std::unique_ptr<OpLibrary>(Backends)> make_ops = [](Backends backends) {
    return make_cuda_ops(std::move(backends));
  };
  // Whether engines are tried before they are offered. Not where nothing is computed.
  bool trials = true;
};

// No part null.
std::shared_ptr<GpuSystem> make_gpu_system(GpuParts parts);

}  // namespace vdnn::cuda
