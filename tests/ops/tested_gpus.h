#pragma once
// The GPUs that gpu_tested_library.cpp runs on: this machine's (real_gpus.cpp), or some that are not there
// (imagined_gpus.cpp), which shows that the suite would run.

#include "vdnn/gpu_system.h"

namespace vdnn::testing {

GpuSystem& tested_gpus();

}  // namespace vdnn::testing
