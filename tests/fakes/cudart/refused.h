#pragma once
// Functions that libraries are linked with and that nothing calls where it has an alternative. Sources that
// define them include no header of CUDA, so that their parameters need not be spelled out.

namespace vdnn::stand_in {

// Counts the call; cudaErrorNotSupported, which is CUDA_ERROR_NOT_SUPPORTED.
int refuse(const char* name);

}  // namespace vdnn::stand_in

#define VDNN_REFUSED(name)                \
  extern "C" int name() {                 \
    return vdnn::stand_in::refuse(#name); \
  }
