// A library with a function that has the same name as one of the driver's (namesakes.cpp).

#include <cuda.h>

#include <cstddef>

extern "C" __attribute__((visibility("default"))) CUresult cuMemAlloc_v2(CUdeviceptr* memory,
                                                                         std::size_t /*bytes*/) {
  *memory = 0;
  return CUDA_ERROR_NOT_SUPPORTED;
}
