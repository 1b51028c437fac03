#include "streams/cuda/cuda_api.h"
#include "vdnn/error.h"

namespace vdnn {

std::unique_ptr<CudaApi> make_cuda_api() {
  throw DeviceError("this build has no CUDA runtime; build with VDNN_CUDA=ON where the CUDA toolkit is");
}

}  // namespace vdnn
