#include <gtest/gtest.h>

#include <memory>

#include "tests/ops/tested_gpus.h"
#include "vdnn/error.h"

namespace vdnn::testing {

namespace {

// Skips all cases if there is no GPU.
class NeedsGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      tested_gpus().count();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << "no GPU to run on: " << error.what();
    }
  }
};

const ::testing::Environment* const kNeedsGpu = ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace

GpuSystem& tested_gpus() {
  static const std::shared_ptr<GpuSystem> kGpus = make_gpu_system();
  return *kGpus;
}

}  // namespace vdnn::testing
