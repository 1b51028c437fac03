#pragma once
// A handle of vdnn/allocator.h over a cpu device, so that tests can read the contents of blocks. Each test
// must have freed all blocks at its end.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "allocator/dropin/c_abi.h"
#include "vdnn/cpu_device.h"

namespace vdnn::testing {

class CpuAllocator : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBudget = std::uint64_t{8} << 20;

  void SetUp() override {
    device_->create_stream("one");
    device_->create_stream("other");
    allocator_ = make();
  }
  void TearDown() override {
    EXPECT_EQ(figures().blocks.current, 0U);
    EXPECT_EQ(vdnn_allocator_destroy(allocator_), VDNN_OK);
    EXPECT_EQ(device_->counters().committed_bytes, 0U);
  }

  vdnn_allocator* make() {
    vdnn_allocator* made = nullptr;
    EXPECT_EQ(create_allocator(make_pool_backend(*device_), nullptr, &made), VDNN_OK);
    return made;
  }
  vdnn_allocator_figures figures() { return statistics().all; }
  vdnn_allocator_figures figures(cudaStream_t stream) {
    vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION};
    EXPECT_EQ(vdnn_allocator_get_stream_statistics(allocator_, stream, &statistics), VDNN_OK);
    return statistics.all;
  }
  vdnn_allocator_statistics statistics() {
    vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION};
    EXPECT_EQ(vdnn_allocator_get_statistics(allocator_, &statistics), VDNN_OK);
    return statistics;
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = kBudget});
  const cudaStream_t one_ = static_cast<cudaStream_t>(stream_handle(0));
  const cudaStream_t other_ = static_cast<cudaStream_t>(stream_handle(1));
  vdnn_allocator* allocator_ = nullptr;
};

}  // namespace vdnn::testing
