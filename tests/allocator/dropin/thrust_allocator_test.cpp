// The pool under Thrust. Containers and algorithms are Thrust's own. They run on the host
// (THRUST_DEVICE_SYSTEM_CPP) in the cpu device's memory, so no kernels run.

#include "vdnn/thrust_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/system/cpp/execution_policy.h>

#include <cstddef>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "tests/allocator/dropin/cpu_allocator.h"

namespace vdnn {
namespace {

using ::testing::ElementsAre;
using Vector = thrust::device_vector<int, ThrustAllocator<int>>;

std::vector<int> content(const Vector& vector) {
  const thrust::host_vector<int> copy = vector;
  return {copy.begin(), copy.end()};
}

class ThrustAllocatorTest : public testing::CpuAllocator {};

TEST_F(ThrustAllocatorTest, ContainersLieInThePool) {
  const ThrustAllocator<int> numbers(allocator_, one_);
  {
    Vector vector(1000, 7, numbers);
    EXPECT_EQ(figures(one_).requested.current, 1000 * sizeof(int));
    vector.resize(3);
    thrust::sequence(vector.begin(), vector.end(), 5);
    EXPECT_THAT(content(vector), ElementsAre(5, 6, 7));
  }
  EXPECT_EQ(figures().blocks.current, 0U);
}

TEST_F(ThrustAllocatorTest, AContainerTakesItsMemoryAlong) {
  Vector first({1, 2, 3}, ThrustAllocator<int>(allocator_, one_));
  Vector second({4}, ThrustAllocator<int>(allocator_, other_));
  second = std::move(first);
  EXPECT_THAT(content(second), ElementsAre(1, 2, 3));
  EXPECT_EQ(second.get_allocator().stream(), one_);
  EXPECT_EQ(figures(other_).blocks.current, 0U);
  Vector third({5, 6}, ThrustAllocator<int>(allocator_, other_));
  third.swap(second);
  EXPECT_THAT(content(second), ElementsAre(5, 6));
  EXPECT_EQ(second.get_allocator().stream(), other_);
}

TEST_F(ThrustAllocatorTest, TemporaryStorageComesFromThePool) {
  ThrustAllocator<char> temporary(allocator_, other_);
  std::vector<int> numbers{5, 3, 4, 1, 2};
  thrust::stable_sort(thrust::cpp::par(temporary), numbers.begin(), numbers.end());
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_GT(figures(other_).blocks.added, 0U);
}

TEST_F(ThrustAllocatorTest, IsEqualForOneStreamOfOnePool) {
  const ThrustAllocator<int> one(allocator_, one_);
  EXPECT_EQ(one, ThrustAllocator<int>(ThrustAllocator<char>(allocator_, one_)));
  EXPECT_NE(one, ThrustAllocator<int>(allocator_, other_));
  EXPECT_NE(one, ThrustAllocator<int>(nullptr, one_));
}

TEST_F(ThrustAllocatorTest, AnImpossibleSizeIsBadAlloc) {
  ThrustAllocator<int> numbers(allocator_, one_);
  EXPECT_THROW(numbers.allocate(kBudget), std::bad_alloc);
  EXPECT_THROW(numbers.allocate(std::numeric_limits<std::size_t>::max() / 2), std::bad_array_new_length)
      << "the size in bytes is beyond 64 bits";
  EXPECT_THROW(Vector(kBudget, 1, numbers), std::bad_alloc);
}

}  // namespace
}  // namespace vdnn
