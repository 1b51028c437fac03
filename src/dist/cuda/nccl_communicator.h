#pragma once
// The communicator of GPUs, with NCCL and CUDA or with fakes of them; see vdnn/nccl_communicator.h.

#include <functional>
#include <memory>

#include "src/dist/cuda/nccl_api.h"
#include "streams/cuda/cuda_api.h"
#include "vdnn/nccl_communicator.h"

namespace vdnn {

// Returns the interface to NCCL; throws DeviceError if there is no NCCL. Each communicator calls it once.
using NcclSource = std::function<std::shared_ptr<NcclApi>()>;

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, const NcclOptions& options,
                                                     const NcclSource& nccl, std::shared_ptr<CudaApi> cuda);

}  // namespace vdnn
