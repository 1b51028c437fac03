// Defects of stream-ordered allocators (docs/known_defects.md): planted ones are found, and our pools do not
// have them.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/defects/judged_device.h"
#include "tests/defects/misdirected_waits.h"
#include "tests/fakes/fake_device.h"
#include "vdnn/cpu_device.h"
#include "vdnn/device_pool.h"
#include "vdnn/pinned_pool.h"

namespace vdnn::testing::pools_test {
namespace {

using Event = FakeDevice::Event;

constexpr std::uint64_t kBytes = 8192;
constexpr StreamId kCompute = 0;
constexpr StreamId kOffload = 1;
constexpr StreamId kPrefetch = 2;

void create_streams(Device& device) {
  for (const char* name : {"compute", "offload", "prefetch"}) {
    device.create_stream(name);
  }
}

Frontier work(Device& device, StreamId stream, const std::string& name,
              const std::vector<AddressRange>& reads, const std::vector<AddressRange>& writes) {
  const auto accesses = [](const std::vector<AddressRange>& ranges) {
    std::vector<Access> result;
    result.reserve(ranges.size());
    for (const AddressRange& range : ranges) {
      result.push_back({.range = range});
    }
    return result;
  };
  return Frontier(device.submit(
      stream, {.name = name, .reads = accesses(reads), .writes = accesses(writes), .cost = {}, .run = {}}));
}

class KnownDefectsOfReuse : public ::testing::TestWithParam<Judge> {
 protected:
  static void expect_one_race(const JudgedDevice& judged, const std::string& first,
                              const std::string& second) {
    const std::vector<SimFinding> findings = judged.findings();
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].first, first);
    EXPECT_EQ(findings[0].second, second);
  }
};

INSTANTIATE_TEST_SUITE_P(Judges, KnownDefectsOfReuse, ::testing::ValuesIn(kJudges),
                         ::testing::PrintToStringParamName());

// --- 2 -----------------------------------------------------------------------------------------------------

// Frees a feature map after its offload. The next layer's feature map reuses the block on the compute stream.
void reuse_after_offload(Device& device) {
  create_streams(device);
  DevicePool pool(device, {});
  const AddressRange x = pool.allocate(kBytes, kCompute).value();
  device.wait(kOffload, work(device, kCompute, "conv1", {}, {x}));
  pool.free(x, work(device, kOffload, "offload x", {x}, {}));
  const AddressRange y = pool.allocate(kBytes, kCompute).value();
  ASSERT_EQ(y, x) << "the block is not reused";
  pool.free(y, work(device, kCompute, "conv2", {}, {y}));
}

// torchtitan#2581: the wait for a block's last user was issued on the "current" stream instead of the one
// that received the block. This corrupted data silently. Our pool knows the stream. If the pool's wait were
// submitted to another stream, the race check would name both users.
TEST_P(KnownDefectsOfReuse, WaitForAReusedBlockOnTheWrongStreamIsFound) {
  const auto right = make_judged_device(GetParam(), 0);
  reuse_after_offload(right->device());
  EXPECT_TRUE(right->findings().empty());

  const auto judged = make_judged_device(GetParam(), 0);
  MisdirectedWaits device(judged->device(), [](StreamId stream, Point) { return stream == kCompute; });
  reuse_after_offload(device);
  EXPECT_EQ(device.astray(), 1U);
  expect_one_race(*judged, "offload x", "conv2");
}

// --- 3 -----------------------------------------------------------------------------------------------------

// A block's last reader is on another stream than the one that frees the block. If the block is freed after
// both streams, the next owner waits for both. If it is freed with the freeing stream's frontier alone, the
// next owner races with the reader.
TEST_P(KnownDefectsOfReuse, BlockFreedOnAnotherStreamThanItsLastReaders) {
  for (const bool forgets_the_reader : {false, true}) {
    const auto judged = make_judged_device(GetParam(), 0);
    Device& device = judged->device();
    create_streams(device);
    DevicePool pool(device, {});
    const AddressRange x = pool.allocate(kBytes, kCompute).value();
    const Frontier made = work(device, kCompute, "conv1", {}, {x});
    device.wait(kOffload, made);
    Frontier last_use = work(device, kCompute, "relu1", {x}, {});
    const Frontier read = work(device, kOffload, "offload x", {x}, {});
    if (!forgets_the_reader) {
      last_use.join(read);
    }
    pool.free(x, last_use);
    const AddressRange y = pool.allocate(kBytes, kPrefetch).value();
    ASSERT_EQ(y, x) << "the block is not reused";
    pool.free(y, work(device, kPrefetch, "prefetch y", {}, {y}));
    if (forgets_the_reader) {
      expect_one_race(*judged, "offload x", "prefetch y");
    } else {
      EXPECT_TRUE(judged->findings().empty());
    }
  }
}

// --- 6 -----------------------------------------------------------------------------------------------------

// A device whose memory suffices for `blocks` blocks of kBytes, and for as many page-locked blocks.
FakeDevice fitting(std::uint64_t blocks) {
  DeviceProperties properties = FakeDevice::small_properties();
  properties.budget_bytes = blocks * kBytes;
  properties.host_budget_bytes = blocks * kBytes;
  return FakeDevice(properties);
}

class KnownDefectsOnAFullDevice : public ::testing::Test {
 protected:
  KnownDefectsOnAFullDevice() { create_streams(device_); }

  Frontier in_flight(StreamId stream) { return Frontier(device_.submit(stream, {})); }
  // Expects that the pool has made one call of the device, by which `stream` waits for `point`: the host has
  // not waited, and no memory was given back.
  void expect_only_wait(StreamId stream, Point point) {
    EXPECT_EQ(
        device_.take_events(),
        (std::vector<Event>{{.kind = Event::Kind::kWait, .stream = stream, .point = point, .range = {}}}));
  }

  static constexpr std::uint64_t kBlocks = 3;
  FakeDevice device_{fitting(kBlocks)};
};

// pytorch#189504 ran out of memory although a fitting block had been freed; #171771 waited for everything
// although one block sufficed. Here all memory is in use, and one block is freed with work in flight on it.
// The next request gets this block, waits on the device for its frontier alone, and neither grows nor fails.
TEST_F(KnownDefectsOnAFullDevice, OutOfMemoryThoughAFittingBlockCameBack) {
  DevicePool pool(device_, {});
  std::array<AddressRange, kBlocks> blocks;
  for (AddressRange& block : blocks) {
    block = pool.allocate(kBytes, kCompute).value();
  }
  in_flight(kCompute);
  EXPECT_FALSE(pool.allocate(kBytes, kPrefetch).has_value());
  const Frontier offloaded = in_flight(kOffload);
  pool.free(blocks[1], offloaded);
  device_.take_events();

  EXPECT_EQ(pool.allocate(kBytes, kPrefetch), blocks[1]);
  expect_only_wait(kPrefetch, offloaded.points()[0]);
  EXPECT_EQ(pool.statistics().growths, kBlocks);
  EXPECT_EQ(pool.statistics().failures, 1U);
  for (const AddressRange& block : blocks) {
    pool.free(block, {});
  }
}

// A free piece exactly as large as the request, merged from two blocks that were freed on different streams.
TEST_F(KnownDefectsOnAFullDevice, OutOfMemoryThoughNeighboursCameBack) {
  DevicePool pool(device_, {});
  const AddressRange left = pool.allocate(kBytes, kCompute).value();
  const AddressRange right = pool.allocate(kBytes, kCompute).value();
  const AddressRange rest = pool.allocate(kBytes, kCompute).value();
  pool.free(left, in_flight(kCompute));
  pool.free(right, in_flight(kOffload));
  const auto both = pool.allocate(2 * kBytes, kPrefetch);
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->begin, left.begin);
  EXPECT_EQ(pool.statistics().failures, 0U);
  pool.free(*both, {});
  pool.free(rest, {});
}

TEST_F(KnownDefectsOnAFullDevice, OutOfPageLockedMemoryThoughAFittingBlockCameBack) {
  PinnedPool pool(device_);
  std::array<AddressRange, kBlocks> blocks;
  for (AddressRange& block : blocks) {
    block = pool.allocate(kBytes, kOffload).value();
  }
  EXPECT_FALSE(pool.allocate(kBytes, kOffload).has_value());
  in_flight(kCompute);
  const Frontier prefetched = in_flight(kPrefetch);
  pool.free(blocks[1], prefetched);
  device_.take_events();

  EXPECT_EQ(pool.allocate(kBytes, kOffload), blocks[1]);
  expect_only_wait(kOffload, prefetched.points()[0]);
  EXPECT_EQ(pool.statistics().page_locks, kBlocks);

  // For another size, the host waits for the one block that must be evicted, and for no other.
  const Frontier older = in_flight(kPrefetch);
  pool.free(blocks[2], older);
  pool.free(blocks[0], in_flight(kCompute));
  std::vector<Frontier> waited;
  device_.on_synchronize = [&](const Frontier& frontier) { waited.push_back(frontier); };
  const AddressRange half = pool.allocate(kBytes / 2, kOffload).value();
  EXPECT_EQ(waited, std::vector<Frontier>{older});
  device_.on_synchronize = nullptr;
  pool.free(half, {});
  pool.free(blocks[1], {});
}

// The same as in OutOfMemoryThoughAFittingBlockCameBack, but with running work: the host gets the block while
// its last user still runs. The requester waits for that user alone, not for a third stream.
TEST(KnownDefects, ReuseWaitsForNoMoreThanTheBlocksOwnUsers) {
  const auto device = make_cpu_device({.budget_bytes = 1 << 20});
  create_streams(*device);
  DevicePool pool(*device, {});
  const std::uint64_t everything = device->properties().budget_bytes;
  const AddressRange block = pool.allocate(everything, kOffload).value();

  std::promise<void> offload_may_end;
  std::promise<void> compute_may_end;
  bool offloaded = false;
  bool saw_offloaded = false;
  const auto run = [&](StreamId stream, std::function<void(void*)> action) {
    return Frontier(device->submit(
        stream, {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = std::move(action)}));
  };
  run(kCompute, [&](void*) { compute_may_end.get_future().wait(); });
  const Frontier last_use = run(kOffload, [&](void*) {
    offload_may_end.get_future().wait();
    offloaded = true;
  });
  pool.free(block, last_use);

  // This call would not return if the host waited for either stream.
  ASSERT_EQ(pool.allocate(everything, kPrefetch), block);
  const Frontier reused = run(kPrefetch, [&](void*) { saw_offloaded = offloaded; });
  offload_may_end.set_value();
  // This call would not return if the reuse waited for the compute stream.
  device->synchronize(reused);
  EXPECT_TRUE(saw_offloaded);
  compute_may_end.set_value();
  pool.free(block, reused);
  device->synchronize_all();  // the compute stream's work uses local variables
}

// --- 7 -----------------------------------------------------------------------------------------------------

// Waiting for memory with nothing in flight would hang. No memory will be freed here, so both pools report
// the shortage with its numbers at once. (With one thread, a wait would last until the test's timeout.)
TEST_F(KnownDefectsOnAFullDevice, WaitingForMemoryWithNothingInFlight) {
  DevicePool pool(device_, {});
  PinnedPool pinned(device_);
  std::array<AddressRange, kBlocks> on_device;
  std::array<AddressRange, kBlocks> on_host;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    on_device[i] = pool.allocate(kBytes, kCompute).value();
    on_host[i] = pinned.allocate(kBytes, kCompute).value();
  }
  pool.free(on_device[1], {});
  pinned.free(on_host[1], {});
  device_.take_events();

  EXPECT_FALSE(pool.allocate(kBytes + 1, kOffload).has_value());
  EXPECT_FALSE(pinned.allocate(kBytes + 1, kOffload).has_value());
  EXPECT_FALSE(pinned.allocate_for_host(kBytes + 1).has_value());
  EXPECT_TRUE(device_.take_events().empty()) << "a pool has waited";
  for (const MemoryShortage& shortage : {pool.shortage(kBytes + 1), pinned.shortage(kBytes + 1)}) {
    EXPECT_EQ(shortage.asked, kBytes + 1);
    EXPECT_EQ(shortage.in_use, 2 * kBytes);
    EXPECT_EQ(shortage.cached, kBytes);
    EXPECT_EQ(shortage.largest_free_block, kBytes);
    EXPECT_EQ(shortage.budget, kBlocks * kBytes);
    EXPECT_EQ(shortage.would_have_fitted, kBytes);
  }
  for (const std::size_t i : {0U, 2U}) {
    pool.free(on_device[i], {});
    pinned.free(on_host[i], {});
  }
}

}  // namespace
}  // namespace vdnn::testing::pools_test
