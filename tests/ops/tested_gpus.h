#pragma once
// The GPUs on which gpu_tested_library.cpp runs: this machine's (real_gpus.cpp), or imagined ones
// (imagined_gpus.cpp). The imagined ones show, without a GPU, that the suite would run on one.

#include "vdnn/gpu_system.h"

namespace vdnn::testing {

GpuSystem& tested_gpus();

}  // namespace vdnn::testing
