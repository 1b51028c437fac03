#pragma once
// Functions that libraries link with but need not call. Sources that define them include no header of CUDA,
// so they need not declare the parameters.

namespace vdnn::stand_in {

// Counts the call and returns cudaErrorNotSupported, which equals CUDA_ERROR_NOT_SUPPORTED.
int refuse(const char* name);

}  // namespace vdnn::stand_in

#define VDNN_REFUSED(name)                \
  extern "C" int name() {                 \
    return vdnn::stand_in::refuse(#name); \
  }
