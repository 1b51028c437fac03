#pragma once
// make_cuda_pool_backend() (vdnn/pool_backend.h) over any table of CUDA's calls.

#include <memory>

#include "streams/cuda/cuda_api.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

std::unique_ptr<PoolBackend> make_cuda_pool_backend(int ordinal, std::shared_ptr<CudaApi> api,
                                                    const CudaBackendOptions& options = {});

}  // namespace vdnn
