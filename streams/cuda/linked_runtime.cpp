// The runtime that is linked into the program. Apart from the table's other source, so that a library which
// stands in for the runtime (allocator/dropin/preload/) does not link another one.

#include "streams/cuda/cuda_runtime_table.h"

namespace vdnn {

std::unique_ptr<CudaApi> make_cuda_api() {
  cuda::RuntimeTable runtime;
#define VDNN_CUDA_RUNTIME_LINKED(call) runtime.call = &::call;
  VDNN_CUDA_RUNTIME_CALLS(VDNN_CUDA_RUNTIME_LINKED)
#undef VDNN_CUDA_RUNTIME_LINKED
  return cuda::make_cuda_api(runtime);
}

}  // namespace vdnn
