// Where the library is built without CUDA.

#include "src/ops/cuda/kernel_table.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

std::unique_ptr<const KernelTable> make_kernel_table() {
  throw DeviceError(
      "cuda: this build has no kernels for GPUs; build with VDNN_CUDA=ON where the CUDA toolkit is "
      "installed");
}

}  // namespace vdnn::cuda
