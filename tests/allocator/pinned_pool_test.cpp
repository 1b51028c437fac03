#include "vdnn/pinned_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_device.h"
#include "tests/fakes/heap.h"

namespace vdnn::pinned_pool_test {
namespace {

using Event = FakeDevice::Event;
using Kind = FakeDevice::Event::Kind;

constexpr StreamId kStreams = 3;

class PinnedPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    for (StreamId stream = 0; stream < kStreams; ++stream) {
      device_.create_stream("stream " + std::to_string(stream));
    }
  }

  Frontier work_on(StreamId stream) { return Frontier(device_.submit(stream, {})); }

  // The blocks that the pool gave back to the system, in order.
  std::vector<AddressRange> take_given_back() {
    std::vector<AddressRange> blocks;
    for (const Event& event : device_.take_events()) {
      if (event.kind == Kind::kFreePinned) {
        blocks.push_back(event.range);
      }
    }
    return blocks;
  }

  FakeDevice device_;
};

// The pool must not round a size just above a power of two up to the next power.
TEST_F(PinnedPoolTest, SizesAreExact) {
  PinnedPool pool(device_);
  constexpr std::uint64_t kBytes = (1 << 16) + 1;
  const AddressRange block = pool.allocate(kBytes, 0).value();
  EXPECT_EQ(block.bytes, kBytes);
  EXPECT_EQ(device_.counters().pinned_bytes, kBytes);
  EXPECT_EQ(pool.statistics().in_use_bytes, kBytes);
  pool.free(block, {});
}

TEST_F(PinnedPoolTest, NothingIsPageLockedInTheSteadyState) {
  PinnedPool pool(device_);
  const auto pass = [&] {
    const AddressRange a = pool.allocate(1000, 0).value();
    const AddressRange b = pool.allocate(1000, 1).value();
    const AddressRange c = pool.allocate(2000, 2).value();
    pool.free(b, device_.frontier(1));
    pool.free(a, device_.frontier(0));
    pool.free(c, device_.frontier(2));
  };
  pass();
  const std::uint64_t heap_before = heap_allocations();
  pass();
  EXPECT_EQ(heap_allocations(), heap_before);
  EXPECT_EQ(pool.statistics().page_locks, 3U);
  EXPECT_EQ(device_.counters().pinned_allocations, 3U);
  EXPECT_EQ(pool.statistics().allocations, 6U);
  EXPECT_EQ(pool.statistics().cached_bytes, 4000U);
}

// Regression: the order of frees decided which block was reused. Steps that free in another order than they
// allocate got other addresses every time.
TEST_F(PinnedPoolTest, BlockLockedFirstIsReusedFirstAndOnlyForItsOwnSize) {
  PinnedPool pool(device_);
  const AddressRange a = pool.allocate(1000, 0).value();
  const AddressRange b = pool.allocate(1000, 0).value();
  pool.free(b, {});
  pool.free(a, {});
  const AddressRange smaller = pool.allocate(999, 0).value();
  EXPECT_FALSE(smaller.overlaps(a) || smaller.overlaps(b));
  EXPECT_EQ(pool.allocate(1000, 0), a);
  EXPECT_EQ(pool.allocate(1000, 0), b);
}

// A defect of another library (Megatron-LM#7398): nothing ordered the two users of a host block across a
// step's border, so the offload of one step overwrote a block that the previous step's reload still read.
TEST_F(PinnedPoolTest, StreamWaitsForTheLastUsersOfWhatItReuses) {
  PinnedPool pool(device_);
  const AddressRange block = pool.allocate(1000, 0).value();
  const Frontier used = work_on(0);
  pool.free(block, used);
  EXPECT_EQ(pool.allocate(1000, 1), block);
  EXPECT_EQ(device_.take_events(),
            (std::vector<Event>{{.kind = Kind::kWait, .stream = 1, .point = used.points()[0], .range = {}}}));
  pool.free(block, {});
  EXPECT_EQ(pool.allocate(1000, 2), block);
  EXPECT_EQ(device_.take_events().size(), 1U) << "a block freed unused keeps its earlier users";
}

TEST_F(PinnedPoolTest, HostIsBlockedUntilAReusedBlockIsFreeInFact) {
  std::vector<Frontier> waited;
  PinnedPool pool(device_);
  const AddressRange block = pool.allocate_for_host(1000).value();
  EXPECT_TRUE(device_.take_events().empty()) << "a new block needs no wait";
  const Frontier used = work_on(0);
  pool.free(block, used);
  device_.on_synchronize = [&](const Frontier& frontier) { waited.push_back(frontier); };
  EXPECT_EQ(pool.allocate_for_host(1000), block);
  EXPECT_EQ(waited, std::vector<Frontier>{used});
}

TEST_F(PinnedPoolTest, EvictsOldestFirstAndNoMoreThanIsNeeded) {
  PinnedPool pool(device_, 1000);
  std::vector<AddressRange> blocks;
  for (const std::uint64_t bytes : {100ULL, 200ULL, 300ULL, 400ULL}) {
    blocks.push_back(pool.allocate(bytes, 0).value());
  }
  for (const std::size_t i : {2U, 0U, 3U, 1U}) {
    pool.free(blocks[i], work_on(0));
  }
  const AddressRange large = pool.allocate(350, 0).value();
  EXPECT_EQ(take_given_back(), (std::vector<AddressRange>{blocks[2], blocks[0]}));
  EXPECT_EQ(pool.statistics().in_use_bytes, 350U);
  EXPECT_EQ(pool.statistics().cached_bytes, 600U);
  EXPECT_EQ(pool.statistics().peak_bytes, 1000U);
  EXPECT_EQ(device_.counters().pinned_bytes, 950U);
  pool.free(large, {});
}

TEST_F(PinnedPoolTest, EvictionWaitsForTheUsersOfTheBlock) {
  std::vector<Frontier> waited;
  PinnedPool pool(device_, 1000);
  const AddressRange old = pool.allocate(600, 0).value();
  const Frontier used = work_on(0);
  pool.free(old, used);
  device_.take_events();
  device_.on_synchronize = [&](const Frontier& frontier) { waited.push_back(frontier); };
  ASSERT_TRUE(pool.allocate(500, 1).has_value());
  EXPECT_EQ(waited, std::vector<Frontier>{used});
  const std::vector<Event> events = device_.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, Kind::kSynchronize);
  EXPECT_EQ(events[1].kind, Kind::kFreePinned);
}

TEST_F(PinnedPoolTest, HopelessRequestEvictsNothing) {
  PinnedPool pool(device_, 1000);
  const AddressRange used = pool.allocate(500, 0).value();
  const AddressRange cached = pool.allocate(300, 0).value();
  pool.free(cached, {});
  EXPECT_FALSE(pool.allocate(501, 0).has_value());
  EXPECT_FALSE(pool.allocate(~std::uint64_t{0}, 0).has_value());
  EXPECT_TRUE(take_given_back().empty());
  EXPECT_EQ(pool.statistics().failures, 2U);
  const MemoryShortage shortage = pool.shortage(501);
  EXPECT_EQ(shortage.asked, 501U);
  EXPECT_EQ(shortage.in_use, 500U);
  EXPECT_EQ(shortage.cached, 300U);
  EXPECT_EQ(shortage.largest_free_block, 300U);
  EXPECT_EQ(shortage.budget, 1000U);
  EXPECT_EQ(shortage.would_have_fitted, 500U);
  EXPECT_TRUE(pool.allocate(shortage.would_have_fitted, 0).has_value());
  pool.free(used, {});
}

TEST_F(PinnedPoolTest, BudgetIsTheDevicesUnlessGiven) {
  PinnedPool pool(device_);
  EXPECT_EQ(pool.shortage(0).budget, device_.properties().host_budget_bytes);
}

TEST_F(PinnedPoolTest, TrimWaitsAndGivesEverythingCachedBack) {
  PinnedPool pool(device_);
  const AddressRange kept = pool.allocate(100, 0).value();
  const AddressRange a = pool.allocate(200, 0).value();
  const AddressRange b = pool.allocate(300, 0).value();
  pool.free(b, work_on(0));
  pool.free(a, work_on(1));
  pool.trim();
  EXPECT_EQ(take_given_back(), (std::vector<AddressRange>{b, a}));
  EXPECT_EQ(device_.counters().pinned_bytes, 100U);
  EXPECT_EQ(pool.statistics().cached_bytes, 0U);
  pool.free(kept, {});
}

TEST_F(PinnedPoolTest, FreeingWhatIsNotInUseChangesNothing) {
  PinnedPool pool(device_);
  const AddressRange block = pool.allocate(1000, 0).value();
  EXPECT_THROW(pool.free(block, Frontier(Point{.stream = 0, .count = 99})), InvalidArgument);
  EXPECT_THROW(pool.free({.begin = block.begin, .bytes = 999}, {}), InvalidArgument);
  EXPECT_THROW(pool.free({.begin = block.begin + 1, .bytes = 1000}, {}), InvalidArgument);
  EXPECT_EQ(pool.statistics().in_use_bytes, 1000U);
  pool.free(block, {});
  EXPECT_THROW(pool.free(block, {}), InvalidArgument) << "twice";
  EXPECT_EQ(pool.statistics().cached_bytes, 1000U);
}

TEST_F(PinnedPoolTest, ZeroBytesAndUnknownStreamsAreRefused) {
  PinnedPool pool(device_);
  EXPECT_THROW(static_cast<void>(pool.allocate(0, 0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(pool.allocate_for_host(0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(pool.allocate(10, 99)), InvalidArgument);
  EXPECT_EQ(pool.statistics().in_use_bytes, 0U);
}

TEST_F(PinnedPoolTest, FailedPageLockLeavesThePoolIntact) {
  PinnedPool pool(device_);
  device_.on_allocate_pinned = [](std::uint64_t) { throw DeviceError("the system refuses"); };
  EXPECT_THROW(static_cast<void>(pool.allocate(1000, 0)), DeviceError);
  EXPECT_EQ(pool.statistics().in_use_bytes, 0U);
  EXPECT_EQ(pool.statistics().cached_bytes, 0U);
  EXPECT_EQ(pool.statistics().peak_bytes, 0U);
  device_.on_allocate_pinned = nullptr;
  EXPECT_TRUE(pool.allocate(1000, 0).has_value());
}

// Work that has failed no longer uses the block, so the budget gets the block's bytes back.
TEST_F(PinnedPoolTest, EvictionAfterFailedWorkReportsTheFailureAndLosesNothing) {
  PinnedPool pool(device_, 1000);
  pool.free(pool.allocate(600, 0).value(), work_on(0));
  device_.on_synchronize = [](const Frontier&) { throw DeviceError("late failure"); };
  EXPECT_THROW(static_cast<void>(pool.allocate(500, 1)), DeviceError);
  EXPECT_EQ(device_.counters().pinned_bytes, 0U);
  EXPECT_EQ(pool.statistics().cached_bytes, 0U);
  EXPECT_TRUE(pool.allocate(1000, 1).has_value());
}

TEST_F(PinnedPoolTest, FailedWaitOfTheHostLeavesTheBlockCached) {
  PinnedPool pool(device_, 1000);
  const AddressRange block = pool.allocate(600, 0).value();
  pool.free(block, work_on(0));
  device_.on_synchronize = [](const Frontier&) { throw DeviceError("late failure"); };
  EXPECT_THROW(static_cast<void>(pool.allocate_for_host(600)), DeviceError);
  EXPECT_EQ(pool.statistics().in_use_bytes, 0U);
  EXPECT_EQ(pool.statistics().cached_bytes, 600U);
  device_.on_synchronize = nullptr;
  EXPECT_EQ(pool.allocate_for_host(600), block);
}

// Work that the host waits for may itself need the pool. If the pool were locked meanwhile, this test would
// hang.
TEST_F(PinnedPoolTest, PoolIsUsableWhileTheHostWaits) {
  PinnedPool pool(device_, 1000);
  const AddressRange other = pool.allocate(100, 0).value();
  const auto use_pool_from_elsewhere = [&](const Frontier&) {
    std::thread([&] {
      pool.free(other, {});
      EXPECT_EQ(pool.allocate(100, 2), other);
    }).join();
  };
  pool.free(pool.allocate(600, 0).value(), work_on(0));
  device_.on_synchronize = use_pool_from_elsewhere;
  const auto evicting = pool.allocate(500, 1);
  ASSERT_TRUE(evicting.has_value());
  pool.free(*evicting, work_on(1));
  ASSERT_TRUE(pool.allocate_for_host(500).has_value());
  device_.on_synchronize = nullptr;
}

TEST_F(PinnedPoolTest, DestructorWaitsAndGivesEverythingBackThoughWorkFailed) {
  {
    PinnedPool pool(device_);
    pool.free(pool.allocate(1000, 0).value(), work_on(0));
    device_.take_events();
    device_.on_synchronize = [](const Frontier&) { throw DeviceError("late failure"); };
  }
  const std::vector<Event> events = device_.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, Kind::kSynchronize);
  EXPECT_EQ(events[1].kind, Kind::kFreePinned);
  EXPECT_EQ(device_.counters().pinned_bytes, 0U);
}

TEST_F(PinnedPoolTest, AgreesWithTheDevicesCountersUnderRandomOperations) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    constexpr std::uint64_t kBudget = 5000;
    FakeDevice device;
    device.create_stream("only");
    PinnedPool pool(device, kBudget);
    std::vector<AddressRange> live;
    std::uint64_t in_use = 0;
    for (int step = 0; step < 300; ++step) {
      if (live.empty() || random() % 100 < 55) {
        const std::uint64_t bytes = 1 + random() % 12 * 100;
        const auto block = pool.allocate(bytes, 0);
        ASSERT_EQ(block.has_value(), in_use + bytes <= kBudget) << "seed " << seed << ", step " << step;
        if (block) {
          for (const AddressRange& other : live) {
            ASSERT_FALSE(block->overlaps(other)) << "seed " << seed << ", step " << step;
          }
          live.push_back(*block);
          in_use += bytes;
        }
      } else {
        std::swap(live[random() % live.size()], live.back());
        pool.free(live.back(), device.frontier(0));
        in_use -= live.back().bytes;
        live.pop_back();
      }
      const PinnedPoolStatistics statistics = pool.statistics();
      ASSERT_EQ(statistics.in_use_bytes, in_use) << "seed " << seed << ", step " << step;
      ASSERT_EQ(statistics.in_use_bytes + statistics.cached_bytes, device.counters().pinned_bytes);
      ASSERT_EQ(statistics.peak_bytes, device.counters().peak_pinned_bytes);
      ASSERT_LE(statistics.peak_bytes, kBudget);
      ASSERT_EQ(statistics.page_locks, device.counters().pinned_allocations);
    }
  }
}

}  // namespace
}  // namespace vdnn::pinned_pool_test
