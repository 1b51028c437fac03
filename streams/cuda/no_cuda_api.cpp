#include "streams/cuda/cuda_api.h"
#include "vdnn/error.h"

namespace vdnn {

std::unique_ptr<CudaApi> make_cuda_api() {
  throw DeviceError(
      "this program has no CUDA runtime: build vdnn where the CUDA toolkit is installed, or link its "
      "component cuda");
}

}  // namespace vdnn
