#pragma once
// Complete GPUs without hardware: the driver on the fake of CUDA, the layers on emulated kernels and the fake
// of the vendors' libraries. Everything is computed, in its turn on the streams, and the fake judges the
// order of all ops and copies (fake_cuda.h).

#include <memory>

#include "tests/fakes/emulated_kernels.h"
#include "tests/fakes/fake_cuda.h"
#include "vdnn/gpu_system.h"

namespace vdnn::testing {

// Launches on a stream of a FakeCuda; throws if the launch returns an error.
HostLaunch launch_on_fake_cuda();

// Uses engines as they are listed, without trials, so that a run depends only on its test.
std::shared_ptr<GpuSystem> make_fake_gpus(const std::shared_ptr<FakeCuda>& cuda,
                                          ThreadOrder order = ThreadOrder::kForward);

}  // namespace vdnn::testing
