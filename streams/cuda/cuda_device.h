#pragma once
// Makes the `cuda` driver (vdnn/cuda_device.h) over any table of CUDA's calls.

#include <memory>

#include "streams/cuda/cuda_api.h"
#include "vdnn/cuda_device.h"

namespace vdnn {

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options, std::shared_ptr<CudaApi> api);

}  // namespace vdnn
