#include <memory>

#include "tests/fakes/fake_gpus.h"
#include "tests/ops/tested_gpus.h"

namespace vdnn::testing {

GpuSystem& tested_gpus() {
  static const std::shared_ptr<GpuSystem> kGpus = make_fake_gpus(std::make_shared<FakeCuda>());
  return *kGpus;
}

}  // namespace vdnn::testing
