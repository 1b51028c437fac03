#pragma once
// make_cuda_pool_backend() on any table of CUDA's calls; see vdnn/pool_backend.h.

#include <memory>

#include "streams/cuda/cuda_api.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

std::unique_ptr<PoolBackend> make_cuda_pool_backend(int ordinal, std::shared_ptr<CudaApi> api,
                                                    const CudaBackendOptions& options = {});

}  // namespace vdnn
