// Replaces cudnn_library.cpp if CMake found no CUDA, no cuDNN or no cudnn-frontend.

#include "src/ops/cuda/vendor_library.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

std::unique_ptr<VendorLibrary> make_vendor_library(int) {
  throw DeviceError("cuda: built without cuDNN and cuBLASLt");
}

}  // namespace vdnn::cuda
