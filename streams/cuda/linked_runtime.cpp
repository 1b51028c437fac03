// The table of the runtime that is linked into the program. It has a source file of its own, so that a
// library that replaces the runtime (allocator/dropin/preload/) does not link a second runtime.

#include "streams/cuda/cuda_runtime_table.h"

// Weak, since a toolkit may lack one of the two functions. Headers before 12.5 do not declare the first;
// later headers deprecate the second.
extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
[[gnu::weak]] cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                                     unsigned version,
                                                                     unsigned long long flags,
                                                                     cudaDriverEntryPointQueryResult* answer);
[[gnu::weak]] cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char* name, void** function,
                                                            unsigned long long flags,
                                                            cudaDriverEntryPointQueryResult* answer);
}

namespace vdnn {

std::unique_ptr<CudaApi> make_cuda_api() {
  cuda::RuntimeTable runtime;
#define VDNN_CUDA_RUNTIME_LINKED(call) runtime.call = &::call;
  VDNN_CUDA_RUNTIME_CALLS(VDNN_CUDA_RUNTIME_LINKED)
#undef VDNN_CUDA_RUNTIME_LINKED
  runtime.cudaGetDriverEntryPointByVersion = &::cudaGetDriverEntryPointByVersion;
  runtime.cudaGetDriverEntryPoint = &::cudaGetDriverEntryPoint;
  return cuda::make_cuda_api(runtime);
}

}  // namespace vdnn
#pragma GCC diagnostic pop
