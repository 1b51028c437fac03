// Order on `sim`, whose race checker sees every access. If blocks are freed with the right frontier, memory
// from the pools is ordered after its last users; if a frontier lacks a point, the memory is not.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/allocator/judging_sim.h"
#include "tests/allocator/pool_program.h"
#include "vdnn/device_pool.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/sim_device.h"

namespace vdnn::pool_order_test {
namespace {

constexpr StreamId kStreams = 4;

SimDeviceOptions checking() {
  SimDeviceOptions options;
  options.profile = sim_profile("cpu");
  options.check_races = true;
  options.check_versions = true;
  return options;
}

std::unique_ptr<SimDevice> make(const SimDeviceOptions& options) {
  return make_sim_with_streams(options, kStreams);
}

void run_twice(SimDevice& device, const DevicePoolOptions& options, std::uint64_t seed) {
  {
    DevicePool pool(device, options);
    PoolProgramRunner runner(pool);
    const std::vector<PoolStep> program = random_program(seed, 80, kStreams);
    ASSERT_TRUE(runner.run(program).has_value());
    ASSERT_TRUE(runner.run(program).has_value());
  }
  EXPECT_EQ(first_finding(device), "") << "random_program(" << seed << ", 80), twice";
}

TEST(PoolOrder, NoRaceInRandomProgramsOfSeveralStreams) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    run_twice(*make(checking()), {}, seed);
  }
}

// This check does not rely on frontiers: in any order that the waits permit, a reader must see the contents
// that were written for it.
TEST(PoolOrder, EveryPermittedOrderReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SimDeviceOptions options = checking();
    options.check_races = false;
    options.order_seed = seed;
    run_twice(*make(options), {}, seed);
  }
}

TEST(PoolOrder, ProtectionForbidsNoPermittedAccess) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SimDeviceOptions options = checking();
    options.page_aligned_blocks = true;
    if (seed % 2 == 0) {
      options.order_seed = seed;
    }
    run_twice(*make(options), {.protect_released = true}, seed);
  }
}

class Accessor {
 public:
  explicit Accessor(Device& device) : device_(device) {}

  Frontier write(AddressRange range, StreamId stream, const std::string& name) {
    const Access access{.range = range, .version = 0};
    return Frontier(
        device_.submit(stream, {.name = name, .reads = {}, .writes = {&access, 1}, .cost = {}, .run = {}}));
  }

 private:
  Device& device_;
};

TEST(PoolOrder, FrontierCutShortIsARace) {
  const auto device = make(checking());
  Accessor accessor(*device);
  DevicePool pool(*device, {});
  const AddressRange block = pool.allocate(1000, 0).value();
  const Frontier first = accessor.write(block, 0, "first use");
  accessor.write(block, 0, "last use");
  pool.free(block, first);
  const AddressRange again = pool.allocate(1000, 1).value();
  ASSERT_EQ(again, block);
  const Frontier reused = accessor.write(again, 1, "reuse");
  ASSERT_EQ(device->findings().size(), 1U);
  EXPECT_EQ(device->findings()[0].kind, SimFinding::Kind::kRace);
  EXPECT_EQ(device->findings()[0].first, "last use");
  EXPECT_EQ(device->findings()[0].second, "reuse");
  pool.free(again, reused);
}

// A requester knows the users of one block, but not those of the neighbour that the pool has merged with it.
// The requester must still wait for the users of both blocks.
TEST(PoolOrder, MergedBlocksAreWaitedForAsAWhole) {
  const auto device = make(checking());
  Accessor accessor(*device);
  DevicePool pool(*device, {});
  const AddressRange left = pool.allocate(1024, 0).value();
  const AddressRange right = pool.allocate(1024, 1).value();
  pool.free(left, accessor.write(left, 0, "left"));
  pool.free(right, accessor.write(right, 1, "right"));
  const AddressRange both = pool.allocate(2048, 0).value();
  ASSERT_TRUE(both.contains(left) && both.contains(right));
  pool.free(both, accessor.write(both, 0, "both"));
  EXPECT_EQ(first_finding(*device), "");
}

// A block that was allocated but never written is freed with an empty frontier. Its earlier users still
// count.
TEST(PoolOrder, BlockFreedUnusedIsStillOrderedAfterItsUsersBefore) {
  const auto device = make(checking());
  Accessor accessor(*device);
  DevicePool pool(*device, {});
  // The block takes all committed memory, so there is no free remainder that remembers the earlier users
  // instead.
  const std::uint64_t bytes = device->properties().granule_bytes;
  const AddressRange block = pool.allocate(bytes, 0).value();
  pool.free(block, accessor.write(block, 0, "use"));
  ASSERT_EQ(pool.allocate(bytes, 1), block);
  pool.free(block, {});
  ASSERT_EQ(pool.allocate(bytes, 2), block);
  pool.free(block, accessor.write(block, 2, "reuse"));
  EXPECT_EQ(first_finding(*device), "");
}

TEST(PoolOrder, UseAfterFreeOfAProtectedBlockIsFound) {
  SimDeviceOptions options = checking();
  options.page_aligned_blocks = true;
  options.check_races = false;
  const auto device = make(options);
  Accessor accessor(*device);
  DevicePool pool(*device, {.protect_released = true});
  const AddressRange block = pool.allocate(1000, 0).value();
  pool.free(block, accessor.write(block, 0, "use"));
  accessor.write(block, 0, "use after free");
  ASSERT_FALSE(device->findings().empty());
  EXPECT_EQ(device->findings()[0].kind, SimFinding::Kind::kInaccessible);
  EXPECT_EQ(device->findings()[0].second, "use after free");
}

// Offload and prefetch through page-locked blocks that several streams share, under a budget that makes the
// pool evict.
void offload_at_random(SimDevice& device, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  DevicePool pool(device, {});
  PinnedPool pinned(device, 40000);
  const AddressRange source = pool.allocate(16384, 0).value();
  struct Offloaded {
    AddressRange host;
    Frontier done;
  };
  std::vector<Offloaded> live;
  for (int step = 0; step < 300; ++step) {
    const auto stream = static_cast<StreamId>(random() % kStreams);
    const std::uint64_t bytes = 1000 * (1 + random() % 8);
    const Access on_device{.range = {.begin = source.begin, .bytes = bytes}, .version = 0};
    if (live.empty() || random() % 2 == 0) {
      if (const auto host = pinned.allocate(bytes, stream)) {
        const Access on_host{.range = *host, .version = 0};
        device.copy(stream, {.name = "offload",
                             .direction = CopyDirection::kDeviceToHost,
                             .destination = on_host,
                             .source = on_device});
        live.push_back({.host = *host, .done = device.frontier(stream)});
      }
    } else {
      const Offloaded block = live.back();
      live.pop_back();
      device.wait(stream, block.done);
      const Access read{.range = block.host, .version = 0};
      const Access target{.range = pool.allocate(block.host.bytes, stream).value(), .version = 0};
      const Point reloaded = device.copy(stream, {.name = "prefetch",
                                                  .direction = CopyDirection::kHostToDevice,
                                                  .destination = target,
                                                  .source = read});
      pool.free(target.range, Frontier(reloaded));
      pinned.free(block.host, Frontier(reloaded));
    }
  }
  for (const Offloaded& block : live) {
    pinned.free(block.host, block.done);
  }
  EXPECT_EQ(pinned.statistics().in_use_bytes, 0U);
  Frontier everyone;
  for (StreamId stream = 0; stream < kStreams; ++stream) {
    everyone.join(device.frontier(stream));
  }
  pool.free(source, everyone);
}

TEST(PoolOrder, NoRaceThroughPageLockedBlocks) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto device = make(checking());
    offload_at_random(*device, seed);
    EXPECT_EQ(first_finding(*device), "") << "offload_at_random(" << seed << ")";
  }
}

TEST(PoolOrder, PageLockedFrontierCutShortIsARace) {
  const auto device = make(checking());
  Accessor accessor(*device);
  PinnedPool pool(*device);
  const AddressRange block = pool.allocate(1000, 0).value();
  const Frontier first = accessor.write(block, 0, "first use");
  accessor.write(block, 0, "last use");
  pool.free(block, first);
  ASSERT_EQ(pool.allocate(1000, 1), block);
  accessor.write(block, 1, "reuse");
  ASSERT_EQ(device->findings().size(), 1U);
  EXPECT_EQ(device->findings()[0].first, "last use");
  device->synchronize_all();
  pool.free(block, {});
}

}  // namespace
}  // namespace vdnn::pool_order_test
