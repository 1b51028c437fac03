#include "tests/fakes/fake_gpus.h"

#include <utility>

#include "src/ops/cuda/gpu_system.h"
#include "tests/fakes/watched_ops.h"
#include "vdnn/error.h"

namespace vdnn::testing {

HostLaunch launch_on_fake_cuda() {
  return [](void* stream, std::function<void()> kernel) {
    const CudaStatus status = FakeCuda::launch(stream, std::move(kernel));
    if (status != CudaStatus::kSuccess) {
      throw DeviceError("fake launch: error " + std::to_string(static_cast<int>(status)));
    }
  };
}

std::shared_ptr<GpuSystem> make_fake_gpus(const std::shared_ptr<FakeCuda>& cuda, ThreadOrder order) {
  return cuda::make_gpu_system(
      {.api = cuda,
       .make_backends = [order] { return make_emulated_backends(order, launch_on_fake_cuda()); },
       .make_ops =
           [](cuda::Backends backends) {
             return std::make_unique<WatchedOps>(cuda::make_cuda_ops(std::move(backends)),
                                                 declare_on_fake_cuda);
           },
       .trials = false});
}

}  // namespace vdnn::testing
