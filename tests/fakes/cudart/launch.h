#pragma once
// Between what compilers call at a launch and the stand-ins for CUDA.

#include <cuda_runtime_api.h>

namespace vdnn::stand_in {

// A kernel, which is not computed.
cudaError_t launch(cudaStream_t stream);

}  // namespace vdnn::stand_in
