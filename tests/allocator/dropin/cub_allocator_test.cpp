// The pool with the interface of CUB's caching allocator.

#include "vdnn/cub_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/allocator/dropin/cpu_allocator.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;

class CubAllocatorTest : public testing::CpuAllocator {};

TEST_F(CubAllocatorTest, BlocksGoBackToTheStreamThatTheyWereAllocatedFor) {
  CubAllocator allocator(allocator_);
  void* block = nullptr;
  ASSERT_EQ(allocator.DeviceAllocate(&block, 1000, other_), cudaSuccess);
  EXPECT_EQ(figures(other_).requested.current, 1000U);
  EXPECT_EQ(allocator.DeviceFree(block), cudaSuccess);
  void* again = nullptr;
  ASSERT_EQ(allocator.DeviceAllocate(&again, 1000, other_), cudaSuccess);
  EXPECT_EQ(again, block);
  EXPECT_EQ(statistics().events_recorded, 0U);
  EXPECT_EQ(allocator.DeviceFree(again), cudaSuccess);
}

TEST_F(CubAllocatorTest, FailuresAreCudasErrors) {
  CubAllocator allocator(allocator_);
  void* block = &allocator;
  EXPECT_EQ(allocator.DeviceAllocate(&block, kBudget + 1, one_), cudaErrorMemoryAllocation);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(allocator.DeviceAllocate(nullptr, 1, one_), cudaErrorInvalidValue);
  EXPECT_EQ(allocator.DeviceFree(&block), cudaErrorInvalidValue);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("not the pool's"));
  EXPECT_EQ(allocator.DeviceFree(nullptr), cudaSuccess);
}

}  // namespace
}  // namespace vdnn
