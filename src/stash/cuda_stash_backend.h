#pragma once
// make_cuda_stash_backend() over any table of CUDA calls; see vdnn/stash_backend.h.

#include <memory>

#include "streams/cuda/cuda_api.h"
#include "vdnn/stash_backend.h"

namespace vdnn {

std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal, bool timed,
                                                      const std::shared_ptr<CudaApi>& api);

}  // namespace vdnn
