#pragma once
// The interface between functions that compilers call at a launch and the stand-ins for CUDA.

#include <cuda_runtime_api.h>

namespace vdnn::stand_in {

// Launches a kernel that is not executed: it only has its place in the order of its stream.
cudaError_t launch(cudaStream_t stream);

}  // namespace vdnn::stand_in
