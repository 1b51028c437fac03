#pragma once
// The `cuda` driver on any table of CUDA's calls; see vdnn/cuda_device.h.

#include <memory>

#include "streams/cuda/cuda_api.h"
#include "vdnn/cuda_device.h"

namespace vdnn {

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options, std::shared_ptr<CudaApi> api);

}  // namespace vdnn
