// Functions for modules compiled at run time, which are not supported here. Programs need the symbols to
// link.

#include "tests/fakes/cudart/refused.h"

int vdnn::stand_in::refuse(const char*) {
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}

VDNN_REFUSED(cuFuncGetAttribute)
VDNN_REFUSED(cuFuncSetAttribute)
VDNN_REFUSED(cuFuncSetCacheConfig)
VDNN_REFUSED(cuLaunchCooperativeKernel)
VDNN_REFUSED(cuLaunchKernel)
VDNN_REFUSED(cuLinkAddData_v2)
VDNN_REFUSED(cuLinkComplete)
VDNN_REFUSED(cuLinkCreate_v2)
VDNN_REFUSED(cuModuleGetFunction)
VDNN_REFUSED(cuModuleLoad)
VDNN_REFUSED(cuModuleLoadData)
VDNN_REFUSED(cuModuleLoadDataEx)
VDNN_REFUSED(cuModuleUnload)
VDNN_REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
VDNN_REFUSED(cuPointerGetAttribute)
VDNN_REFUSED(cuTensorMapEncodeTiled)
