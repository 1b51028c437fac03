// Replaces gpu_shortage.cpp in programs without the CUDA runtime.

#include "src/ops/cuda/gpu_shortage.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

void throw_out_of_memory(const std::string& what) {
  throw OutOfMemory(what, {});
}

}  // namespace vdnn::cuda
