#include "streams/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/fake_cuda.h"
#include "streams/device_conformance.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using ::testing::IsEmpty;

// A fake that fails the test where something was done wrong or is left.
std::shared_ptr<FakeCuda> strict_fake(const FakeCudaOptions& options) {
  return {new FakeCuda(options), [](FakeCuda* fake) {
            EXPECT_THAT(fake->misuses(), IsEmpty());
            EXPECT_THAT(fake->leaks(), IsEmpty());
            delete fake;
          }};
}

DeviceFactory factory(std::uint64_t seed) {
  return {
      .name = "Seed" + std::to_string(seed),
      .make =
          [seed](std::uint64_t budget_bytes, std::uint64_t host_budget_bytes) {
            // The suite's host budget is smaller than a real GPU's granule, which it takes as a copy's size.
            return make_cuda_device({.budget_bytes = budget_bytes, .host_budget_bytes = host_budget_bytes},
                                    strict_fake({.seed = seed, .granule_bytes = 64 << 10}));
          },
      .launch =
          [](void* stream, std::function<void()> body) {
            EXPECT_EQ(FakeCuda::launch(stream, std::move(body)), CudaStatus::kSuccess);
          }};
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(factory(1), factory(2), factory(3), factory(4), factory(5)),
                         device_name);

}  // namespace
}  // namespace vdnn
