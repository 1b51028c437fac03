#pragma once
// GPUs by any table of CUDA's calls, with any library of layers on them.

#include <functional>
#include <memory>

#include "streams/cuda/cuda_api.h"
#include "vdnn/gpu_system.h"

namespace vdnn::cuda {

struct GpuParts {
  std::shared_ptr<CudaApi> api;
  // For the calling thread's GPU, as make_cuda_ops().
  std::function<std::unique_ptr<OpLibrary>()> make_ops;
};

// Neither part null.
std::shared_ptr<GpuSystem> make_gpu_system(GpuParts parts);

}  // namespace vdnn::cuda
