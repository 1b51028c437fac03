#pragma once
// GPUs that are not there, whole: the driver on the fake of CUDA, the layers on emulated kernels and the fake
// of the vendors' libraries. Everything is computed, in its turn on the streams, and the order of all ops and
// copies is judged (fake_cuda.h).

#include <memory>

#include "tests/fakes/emulated_kernels.h"
#include "tests/fakes/fake_cuda.h"
#include "vdnn/gpu_system.h"

namespace vdnn::testing {

// A launch on a stream of a FakeCuda; throws the error that the launch returns.
HostLaunch launch_on_fake_cuda();

// Engines are taken as they are listed: a run is what its test makes it, without trials before.
std::shared_ptr<GpuSystem> make_fake_gpus(const std::shared_ptr<FakeCuda>& cuda,
                                          ThreadOrder order = ThreadOrder::kForward);

}  // namespace vdnn::testing
