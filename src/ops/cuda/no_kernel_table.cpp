// Programs link this file if the library is built without CUDA, or if they do not use the library's component
// cuda.

#include "src/ops/cuda/kernel_table.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

std::unique_ptr<const KernelTable> make_kernel_table() {
  throw DeviceError(
      "cuda: this program has no kernels for GPUs: build vdnn where the CUDA toolkit is installed, or "
      "link its component cuda");
}

}  // namespace vdnn::cuda
