#include "vdnn/limited_backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "vdnn/failing_backend.h"
#include "vdnn/sim_device.h"
#include "vdnn/stream_pool.h"

namespace vdnn::limited_backend_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class LimitedBackendTest : public ::testing::Test {
 protected:
  LimitedBackendTest() {
    SimDeviceOptions options;
    options.profile = sim_profile("cpu");
    device_ = make_sim_device(options);
    device_->create_stream("one");
    target_ = make_pool_backend(*device_);
  }

  const StreamHandle stream_ = stream_handle(0);
  std::unique_ptr<SimDevice> device_;
  std::unique_ptr<PoolBackend> target_;
  SharedLimit limit_{8 * kMiB};
};

TEST_F(LimitedBackendTest, WhatOnePoolGivesBackAnotherTakes) {
  LimitedBackend backend(*target_, limit_);
  EXPECT_EQ(backend.properties().memory_bytes, 8 * kMiB);
  StreamPool first(backend, {});
  StreamPool second(backend, {.budget_bytes = 6 * kMiB});
  const auto large = first.allocate(5 * kMiB, stream_);
  ASSERT_TRUE(large);
  EXPECT_TRUE(second.allocate(3 * kMiB, stream_));
  EXPECT_EQ(limit_.taken(), 8 * kMiB);
  EXPECT_FALSE(second.allocate(kMiB, stream_)) << "its own budget would allow it";
  EXPECT_FALSE(first.allocate(1, stream_));
  first.free(large->begin);
  EXPECT_FALSE(second.allocate(kMiB, stream_));
  first.trim();
  EXPECT_EQ(limit_.taken(), 3 * kMiB);
  EXPECT_TRUE(second.allocate(3 * kMiB, stream_));
  EXPECT_FALSE(second.allocate(1, stream_)) << "its own budget is used up";
  EXPECT_TRUE(first.allocate(2 * kMiB, stream_));
  EXPECT_EQ(device_->counters().peak_committed_bytes, 8 * kMiB);
}

TEST_F(LimitedBackendTest, WhatTheDeviceRefusesIsNotTaken) {
  bool refuse = true;
  FailingBackend failing(make_pool_backend(*device_), [&](const char*) {
    if (refuse) {
      throw DeviceError("refused");
    }
  });
  LimitedBackend backend(failing, limit_);
  EXPECT_THROW(backend.create_granule(), DeviceError);
  EXPECT_EQ(limit_.taken(), 0U);
  refuse = false;
  const GranuleHandle granule = backend.create_granule();
  EXPECT_EQ(limit_.taken(), backend.properties().granule_bytes);
  refuse = true;
  EXPECT_THROW(backend.destroy_granule(granule), DeviceError);
  EXPECT_EQ(limit_.taken(), backend.properties().granule_bytes);
  refuse = false;
  backend.destroy_granule(granule);
  EXPECT_EQ(limit_.taken(), 0U);
}

class Fixed final : public ForwardingBackend {
 public:
  explicit Fixed(PoolBackend& target) : ForwardingBackend(target, fixed(target.properties())) {}

 private:
  static PoolBackendProperties fixed(PoolBackendProperties properties) {
    properties.maps = false;
    return properties;
  }
};

TEST_F(LimitedBackendTest, MemoryThatCannotBeGivenBackCannotBeShared) {
  Fixed fixed(*target_);
  EXPECT_THROW(LimitedBackend(fixed, limit_), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::limited_backend_test
