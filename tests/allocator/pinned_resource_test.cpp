#include "vdnn/pinned_resource.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <string>
#include <vector>

#include "tests/fakes/fake_device.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"

namespace vdnn::pinned_resource_test {
namespace {

constexpr std::uint64_t kBudget = 1 << 20;

class PinnedResourceTest : public ::testing::Test {
 protected:
  void SetUp() override { stream_ = device_->create_stream("copies"); }

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = kBudget, .host_budget_bytes = kBudget});
  StreamId stream_ = 0;
  PinnedPool pool_{*device_};
};

TEST_F(PinnedResourceTest, ContainersLieInThePoolAndLockNothingInTheSteadyState) {
  PinnedResource resource(pool_);
  for (int step = 0; step < 3; ++step) {
    std::pmr::vector<int> numbers(1000, &resource);
    std::iota(numbers.begin(), numbers.end(), step);
    EXPECT_EQ(numbers.back(), step + 999);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 1000 * sizeof(int));
  }
  EXPECT_EQ(pool_.statistics().in_use_bytes, 0U);
  EXPECT_EQ(pool_.statistics().page_locks, 1U);
}

// The container is destroyed while the device copies out of it. The memory's next owner must not overwrite
// what the copy still reads.
TEST_F(PinnedResourceTest, MemoryIsGivenAgainWhenItsStreamIsDoneWithIt) {
  PinnedResource resource(pool_, *device_, stream_);
  const AddressRange memory = device_->reserve(kBudget);
  device_->commit(memory);
  for (int round = 0; round < 20; ++round) {
    std::pmr::vector<std::uint8_t> bytes(kBudget / 2, static_cast<std::uint8_t>(round), &resource);
    const AddressRange source{.begin = reinterpret_cast<std::uintptr_t>(bytes.data()), .bytes = bytes.size()};
    const AddressRange target{.begin = memory.begin, .bytes = bytes.size()};
    device_->copy(stream_, {.name = "upload",
                            .direction = CopyDirection::kHostToDevice,
                            .destination = {target},
                            .source = {source}});
    bytes = std::pmr::vector<std::uint8_t>(&resource);
    const std::pmr::vector<std::uint8_t> next(kBudget / 2, 0xff, &resource);
    device_->synchronize_all();
    const auto* const copied = pointer_to<std::uint8_t>(memory.begin);
    ASSERT_EQ(std::accumulate(copied, copied + target.bytes, std::uint64_t{0}), round * target.bytes)
        << "round " << round;
  }
  EXPECT_EQ(pool_.statistics().page_locks, 1U);
  device_->decommit(memory);
  device_->unreserve(memory);
}

TEST(PinnedResourceOrder, WorkOfItsStreamIsWaitedFor) {
  std::vector<Frontier> waited;  // outlives the pool, whose destructor waits, too
  FakeDevice device;
  const StreamId stream = device.create_stream("copies");
  PinnedPool pool(device);
  device.on_synchronize = [&](const Frontier& frontier) { waited.push_back(frontier); };
  PinnedResource idle(pool);
  PinnedResource ordered(pool, device, stream);
  const Frontier work(device.submit(stream, {}));
  idle.deallocate(idle.allocate(100), 100);
  void* const block = idle.allocate(100);
  EXPECT_TRUE(waited.empty()) << "no work was in flight on the block";
  ordered.deallocate(block, 100);
  EXPECT_EQ(idle.allocate(100), block);
  ASSERT_EQ(waited.size(), 1U);
  EXPECT_TRUE(waited.front().dominates(work));
  idle.deallocate(block, 100);
}

TEST_F(PinnedResourceTest, RefusalsSayTheNumbers) {
  PinnedResource resource(pool_);
  void* const block = resource.allocate(kBudget - 10);
  try {
    resource.deallocate(resource.allocate(11), 11);
    ADD_FAILURE() << "beyond the budget";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, 11U);
    EXPECT_EQ(error.shortage().budget, kBudget);
  }
  resource.deallocate(block, kBudget - 10);
  EXPECT_THROW(static_cast<void>(resource.allocate(1, 8192)), InvalidArgument);
  void* const page = resource.allocate(1, 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(page) % 4096, 0U);
  resource.deallocate(page, 1, 4096);
  resource.deallocate(resource.allocate(0), 0);
  EXPECT_EQ(pool_.statistics().in_use_bytes, 0U);
}

TEST_F(PinnedResourceTest, IsEqualWhereMemoryMayBeGivenBackToTheOther) {
  PinnedPool other_pool(*device_);
  const PinnedResource resource(pool_);
  const PinnedResource ordered(pool_, *device_, stream_);
  EXPECT_EQ(resource, PinnedResource(pool_));
  EXPECT_EQ(ordered, PinnedResource(pool_, *device_, stream_));
  EXPECT_NE(resource, ordered);
  EXPECT_NE(resource, PinnedResource(other_pool));
  EXPECT_FALSE(resource.is_equal(*std::pmr::new_delete_resource()));
}

}  // namespace
}  // namespace vdnn::pinned_resource_test
