#include "src/ops/cuda/gpu_shortage.h"

#include <cuda_runtime_api.h>

#include "vdnn/error.h"

namespace vdnn::cuda {

void throw_out_of_memory(const std::string& what) {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();  // clears the error of this call
  }
  throw OutOfMemory(what, {.in_use = total - free, .budget = total, .would_have_fitted = free});
}

}  // namespace vdnn::cuda
