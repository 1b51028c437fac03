// Programs with several streams run on `sim`. Its race checker sees every access, whereas the pool sees none.
// The pool's waits order memory after its last users; without these waits, the race checker finds races.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/foreign_program.h"
#include "tests/allocator/judging_sim.h"
#include "tests/extent.h"
#include "vdnn/forwarding_backend.h"
#include "vdnn/sim_device.h"
#include "vdnn/stream_pool.h"

namespace vdnn::stream_pool_order_test {
namespace {

constexpr StreamId kStreams = 4;
constexpr std::uint64_t kBlocks = 80;
constexpr std::uint64_t kKiB = 1024;

std::unique_ptr<SimDevice> make_device(std::optional<std::uint64_t> order_seed, StreamId streams = kStreams) {
  SimDeviceOptions options;
  options.profile = sim_profile("cpu");
  options.check_races = !order_seed;
  options.check_versions = true;
  options.order_seed = order_seed;
  return make_sim_with_streams(options, streams);
}

// `memory` is the backend beneath `backend`, and provides the device memory.
void run(SimDevice& device, const DevicePoolBackend& memory, PoolBackend& backend, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Choice choice = [&random](std::uint64_t bound) { return random() % bound; };
  StreamPool pool(backend, foreign_options(choice));
  ForeignProgram program(device, memory, pool, kStreams, choice);
  while (program.allocations() < kBlocks) {
    program.step();
  }
  program.finish();
  EXPECT_EQ(pool.statistics().all.reserved.current, 0U);
}

std::uint64_t seeds() {
  return testing::extent({.usual = 1000, .under_sanitizers = 60, .in_long_run = 10000});
}

TEST(StreamPoolOrder, NoRaceInProgramsThatThePoolDoesNotSee) {
  for (std::uint64_t seed = 0; seed < seeds() && !HasFailure(); ++seed) {
    const auto device = make_device(std::nullopt);
    const auto backend = make_pool_backend(*device);
    run(*device, *backend, *backend, seed);
    EXPECT_EQ(first_finding(*device), "") << "run(" << seed << ")";
  }
}

// This check does not rely on frontiers: in any order that the waits permit, a reader must see the contents
// that were written for it.
TEST(StreamPoolOrder, EveryPermittedOrderReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < seeds() / 4 && !HasFailure(); ++seed) {
    const auto device = make_device(seed);
    const auto backend = make_pool_backend(*device);
    run(*device, *backend, *backend, seed);
    EXPECT_EQ(first_finding(*device), "") << "run(" << seed << "), in an order of that seed";
  }
}

class WithoutWaits final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void wait(StreamHandle, EventHandle) override {}
};

TEST(StreamPoolOrder, TheCheckerSeesThatWaitsAreMissing) {
  std::uint64_t found = 0;
  const std::uint64_t tried = seeds() / 10;
  for (std::uint64_t seed = 0; seed < tried; ++seed) {
    const auto device = make_device(std::nullopt);
    const auto backend = make_pool_backend(*device);
    WithoutWaits broken(*backend);
    run(*device, *backend, broken, seed);
    found += first_finding(*device).empty() ? 0U : 1U;
  }
  EXPECT_GT(found, tried * 3 / 4);
}

// --- streams that come and go ------------------------------------------------------------------------------

// Presents each stream of the device to the pool as a sequence of streams. Either the program reports all,
// some or none of their ends, or they are default streams of threads.
class ChangingStreams final : public ForwardingBackend {
 public:
  ChangingStreams(PoolBackend& target, bool of_threads)
      : ForwardingBackend(target), generations_(kManyStreams + 1, 0), of_threads_(of_threads) {}

  static constexpr StreamId kManyStreams = 150;

  void replace(StreamId stream) { ++generations_[stream]; }

  std::uint64_t stream_id(StreamHandle stream) override {
    const std::uint64_t id = ForwardingBackend::stream_id(stream);
    return generations_[id - 1] * 1000 + id;
  }
  bool is_of_thread(StreamHandle) const override { return of_threads_; }

 private:
  std::vector<std::uint64_t> generations_;
  const bool of_threads_;
};

enum class Ends : std::uint8_t { kTold, kUntold, kSomeTold, kOfThreads };

void run_changing(SimDevice& device, std::uint64_t seed, Ends ends) {
  const auto memory = make_pool_backend(device);
  ChangingStreams streams(*memory, ends == Ends::kOfThreads);
  std::mt19937_64 random(seed);
  const Choice choice = [&random](std::uint64_t bound) { return random() % bound; };
  StreamPoolOptions options = foreign_options(choice);
  options.ends_are_told = options.ends_are_told && ends == Ends::kTold;
  StreamPool pool(streams, options);
  const EndStream end = [&](StreamId stream) {
    if (ends == Ends::kTold || (ends == Ends::kSomeTold && choice(2) == 0)) {
      pool.forget(stream_handle(stream));
    }
    streams.replace(stream);
  };
  ForeignProgram program(device, *memory, pool, ChangingStreams::kManyStreams, choice, end, 15);
  while (program.allocations() < 600) {
    program.step();
    EXPECT_LE(pool.statistics().events_held, 1024U);
  }
  program.finish();
  EXPECT_EQ(pool.statistics().all.reserved.current, 0U);
}

class ChangingStreamsTest : public ::testing::TestWithParam<Ends> {};

INSTANTIATE_TEST_SUITE_P(All, ChangingStreamsTest,
                         ::testing::Values(Ends::kTold, Ends::kUntold, Ends::kSomeTold, Ends::kOfThreads));

// Covers a defect found in development: a parked stream was settled (allocator/stream_order.h) while the pool
// allocated a block for it.
TEST_P(ChangingStreamsTest, NoRace) {
  for (std::uint64_t seed = 0; seed < seeds() / 20 && !HasFailure(); ++seed) {
    const auto device = make_device(std::nullopt, ChangingStreams::kManyStreams);
    run_changing(*device, seed, GetParam());
    EXPECT_EQ(first_finding(*device), "") << "run_changing(" << seed << ")";
  }
}

TEST_P(ChangingStreamsTest, EveryPermittedOrderReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < seeds() / 40 && !HasFailure(); ++seed) {
    const auto device = make_device(seed, ChangingStreams::kManyStreams);
    run_changing(*device, seed, GetParam());
    EXPECT_EQ(first_finding(*device), "") << "run_changing(" << seed << "), in an order of that seed";
  }
}

// --- one thing at a time -----------------------------------------------------------------------------------

class StreamPoolOrderTest : public ::testing::Test {
 protected:
  Point write(AddressRange range, StreamId stream, const std::string& name) {
    std::vector<Access> accesses;
    for (const AddressRange& part : backend_->device_ranges(range)) {
      accesses.push_back({.range = part, .version = 0});
    }
    return device_->submit(stream, {.name = name, .reads = {}, .writes = accesses, .cost = {}, .run = {}});
  }
  AddressRange take(std::uint64_t bytes, StreamId stream) {
    return pool_.allocate(bytes, stream_handle(stream)).value();
  }
  StreamPoolStatistics statistics() const { return pool_.statistics(); }

  std::unique_ptr<SimDevice> device_ = make_device(std::nullopt);
  std::unique_ptr<DevicePoolBackend> backend_ = make_pool_backend(*device_);
  StreamPool pool_{*backend_, {.budget_bytes = 4096 * kKiB, .small_bytes = 8 * kKiB, .cache_bytes = 0}};
};

TEST_F(StreamPoolOrderTest, AStreamTakesItsOwnBlocksBackWithoutAnEvent) {
  for (int i = 0; i < 10; ++i) {
    const AddressRange block = take(100 * kKiB, 0);
    write(block, 0, "use");
    pool_.free(block.begin);
  }
  EXPECT_EQ(statistics().events_recorded, 0U);
  EXPECT_EQ(statistics().stream_waits, 0U);
  EXPECT_EQ(statistics().growths, 1U);
  EXPECT_EQ(first_finding(*device_), "");
}

TEST_F(StreamPoolOrderTest, OneEventServesAllThatWasFreedBefore) {
  std::vector<AddressRange> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(take(64 * kKiB, 0));
    write(blocks.back(), 0, "use");
  }
  for (const AddressRange& block : blocks) {
    pool_.free(block.begin);
  }
  for (int i = 0; i < 3; ++i) {
    write(take(64 * kKiB, 1), 1, "reuse");
  }
  EXPECT_EQ(statistics().events_recorded, 1U);
  EXPECT_EQ(statistics().stream_waits, 1U) << "one wait covers all three blocks";
  EXPECT_EQ(first_finding(*device_), "");
}

// Waits are transitive: a stream that waits for another stream also comes after everything for which that
// stream has waited.
TEST_F(StreamPoolOrderTest, KnowledgeIsHandedOn) {
  const AddressRange first = take(64 * kKiB, 0);
  const AddressRange second = take(64 * kKiB, 0);
  const AddressRange kept = take(64 * kKiB, 0);
  pool_.free(first.begin);
  pool_.free(second.begin);
  const AddressRange by_1 = take(64 * kKiB, 1);  // waits for stream 0
  pool_.free(by_1.begin);
  const AddressRange a = take(64 * kKiB, 2);  // waits for stream 1, and thereby for stream 0
  const AddressRange b = take(64 * kKiB, 2);
  EXPECT_EQ(statistics().stream_waits, 2U);
  write(a, 2, "a");
  write(b, 2, "b");
  EXPECT_EQ(first_finding(*device_), "");
  pool_.free(kept.begin);
}

TEST_F(StreamPoolOrderTest, ReadersThatThePoolWasToldOfAreWaitedFor) {
  const AddressRange block = take(64 * kKiB, 0);
  write(block, 0, "write");
  device_->wait(1, device_->frontier(0));
  pool_.used_on(block.begin, stream_handle(1));
  pool_.used_on(block.begin, stream_handle(1));
  pool_.free(block.begin);
  // All work of the reader's stream counts: the work before used_on(), and the work between used_on() and the
  // free.
  ASSERT_EQ(take(64 * kKiB, 0), block);
  EXPECT_EQ(statistics().stream_waits, 1U);
  EXPECT_EQ(statistics().events_recorded, 1U);
}

// Stream 2 frees a block that stream 1 allocated but never used. For the block's earlier user, stream 1 has
// waited, but stream 2 has not.
TEST_F(StreamPoolOrderTest, BlockFreedElsewhereUnusedIsOrderedAfterItsUsersBefore) {
  const AddressRange block = take(64 * kKiB, 0);
  write(block, 0, "use");
  pool_.free(block.begin);
  ASSERT_EQ(take(64 * kKiB, 1), block);
  pool_.free(block.begin, stream_handle(2));
  ASSERT_EQ(take(64 * kKiB, 2), block);
  write(block, 2, "reuse");
  EXPECT_EQ(first_finding(*device_), "");
}

// Regression: a block that a stream took from its cache and freed unused was at once free for other streams.
TEST_F(StreamPoolOrderTest, BlockTakenBackUnusedIsOrderedAfterItsUsersBefore) {
  for (const bool idle : {false, true}) {
    StreamPool pool(*backend_, {.budget_bytes = 4096 * kKiB, .small_bytes = 64 * kKiB});
    const AddressRange block = pool.allocate(64 * kKiB, stream_handle(0)).value();
    write(block, 0, "use");
    pool.free(block.begin);
    ASSERT_EQ(pool.allocate(64 * kKiB, stream_handle(0)), block);
    EXPECT_EQ(pool.statistics().reused_from_cache, 1U);
    idle ? pool.free_idle(block.begin) : pool.free(block.begin, stream_handle(1));
    ASSERT_EQ(pool.allocate(64 * kKiB, stream_handle(1)), block);
    write(block, 1, "reuse");
    EXPECT_EQ(first_finding(*device_), "");
  }
}

TEST_F(StreamPoolOrderTest, MemoryThatIsReadyHasBeenWaitedForOnTheHost) {
  const AddressRange block = take(64 * kKiB, 0);
  write(block, 0, "use");
  pool_.free(block.begin);
  ASSERT_EQ(pool_.allocate_ready(64 * kKiB), block);
  EXPECT_EQ(statistics().host_waits, 1U);
  write(block, 1, "use by another");
  write(pool_.allocate_ready(64 * kKiB).value(), 2, "fresh memory");
  EXPECT_EQ(statistics().host_waits, 1U);
  EXPECT_EQ(first_finding(*device_), "");
}

// Regression: the pool waited for the whole device because of blocks that the host had freed into its cache.
TEST_F(StreamPoolOrderTest, WhatTheHostHasFreedIsWaitedForByNobody) {
  StreamPool pool(*backend_, {.budget_bytes = 4096 * kKiB, .small_bytes = 64 * kKiB});
  pool.free(pool.allocate_ready(64 * kKiB)->begin);
  pool.allocate(64 * kKiB, stream_handle(0));
  EXPECT_EQ(pool.statistics().growths, 1U);
  EXPECT_EQ(pool.statistics().device_waits, 0U);
}

// If work on fragments is not done, the device waits for it, and the host does not.
TEST_F(StreamPoolOrderTest, FragmentsAreWaitedForOnTheDevice) {
  std::vector<AddressRange> blocks;
  for (StreamId stream = 0; stream < 2; ++stream) {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(take(512 * kKiB, stream));
      write(blocks.back(), stream, "use");
    }
  }
  // Frees every second block, so that no two holes touch.
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    pool_.free(blocks[i].begin);
  }
  EXPECT_EQ(statistics().all.reserved.current, 4096 * kKiB);
  const AddressRange made = take(1024 * kKiB, 2);
  write(made, 2, "made of fragments");
  EXPECT_GT(statistics().stream_waits, 0U);
  EXPECT_EQ(statistics().host_waits, 0U);
  EXPECT_EQ(statistics().device_waits, 0U);
  EXPECT_EQ(statistics().all.reserved.peak, 4096 * kKiB);
  EXPECT_EQ(first_finding(*device_), "");
  // Conversely, granules of the view return to their addresses at home.
  pool_.free(made.begin);
  write(take(512 * kKiB, 3), 3, "at home again");
  EXPECT_GT(statistics().stream_waits, 1U);
  EXPECT_EQ(first_finding(*device_), "");
  // An access that the pool does not order is found, whatever its addresses.
  write(made, 1, "after it was freed");
  EXPECT_NE(first_finding(*device_), "");
}

TEST_F(StreamPoolOrderTest, TrimmingWaitsForNoMoreThanItNeeds) {
  std::vector<AddressRange> blocks;
  for (const StreamId stream : {0, 2, 1}) {
    blocks.push_back(take(1024 * kKiB, stream));
    write(blocks.back(), stream, "use");
  }
  pool_.free(blocks[0].begin);
  pool_.free(blocks[2].begin);
  pool_.trim(statistics().all.reserved.current - 512 * kKiB);
  EXPECT_EQ(statistics().host_waits, 1U);
  EXPECT_EQ(statistics().device_waits, 0U);
  EXPECT_EQ(first_finding(*device_), "");
}

TEST_F(StreamPoolOrderTest, NobodyWaitsForWhatCannotSuffice) {
  std::vector<AddressRange> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(take(512 * kKiB, 0));
    write(blocks.back(), 0, "use");
  }
  pool_.free(blocks[0].begin);
  EXPECT_EQ(pool_.allocate(1024 * kKiB, stream_handle(0)), std::nullopt);
  EXPECT_EQ(statistics().host_waits, 0U);
  EXPECT_EQ(statistics().failures, 1U);
  EXPECT_EQ(pool_.shortage(1024 * kKiB).would_have_fitted, 512 * kKiB);
}

// --- ends of streams ---------------------------------------------------------------------------------------

// Streams that reuse handles: the n-th stream of the device has handle (n modulo 2) + 1.
class ReusedHandles final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  static StreamHandle handle(StreamId stream) { return stream_handle(stream % 2); }
  // From now on, the handle means this stream after create(), and no stream after destroy().
  void create(StreamId stream) { now_[stream % 2] = stream; }
  void destroy(StreamId stream) { now_[stream % 2].reset(); }

  std::uint64_t stream_id(StreamHandle stream) override {
    return ForwardingBackend::stream_id(meant_by(stream));
  }
  EventHandle record(StreamHandle stream) override { return ForwardingBackend::record(meant_by(stream)); }
  void wait(StreamHandle stream, EventHandle event) override {
    ForwardingBackend::wait(meant_by(stream), event);
  }

 private:
  StreamHandle meant_by(StreamHandle stream) const {
    const auto& meant = now_[reinterpret_cast<std::uintptr_t>(stream) - 1];
    if (!meant) {
      throw InvalidArgument("no such stream");
    }
    return stream_handle(*meant);
  }

  std::array<std::optional<StreamId>, 2> now_;
};

class EndsOfStreams : public StreamPoolOrderTest {
 protected:
  EndsOfStreams() {
    handles_.create(0);
    handles_.create(1);
  }
  AddressRange take(StreamId stream) {
    return reused_.allocate(64 * kKiB, ReusedHandles::handle(stream)).value();
  }

  ReusedHandles handles_{*backend_};
  StreamPool reused_{handles_, {.budget_bytes = 4096 * kKiB, .small_bytes = 8 * kKiB}};
};

TEST_F(EndsOfStreams, ToldBeforehandCostOneEvent) {
  const AddressRange block = take(0);
  write(block, 0, "use");
  reused_.free(block.begin);
  reused_.forget(ReusedHandles::handle(0));
  handles_.destroy(0);
  EXPECT_EQ(reused_.statistics().events_recorded, 1U);
  ASSERT_EQ(take(1), block);
  write(block, 1, "reuse");
  EXPECT_EQ(reused_.statistics().events_recorded, 1U);
  EXPECT_EQ(reused_.statistics().device_waits, 0U);
  EXPECT_EQ(first_finding(*device_), "");
}

TEST_F(EndsOfStreams, BlocksOutliveTheirStream) {
  const AddressRange block = take(0);
  write(block, 0, "use");
  reused_.forget(ReusedHandles::handle(0));
  handles_.destroy(0);
  reused_.free(block.begin);
  ASSERT_EQ(take(1), block);
  write(block, 1, "reuse");
  EXPECT_EQ(first_finding(*device_), "");
}

TEST_F(EndsOfStreams, OfWhichNothingDependsCostNothing) {
  take(1);
  reused_.forget(ReusedHandles::handle(0));
  EXPECT_EQ(reused_.statistics().events_recorded, 0U);
}

TEST_F(EndsOfStreams, WithoutNoticeTheDeviceIsWaitedForWhenTheHandleTurnsUpAgain) {
  const AddressRange block = take(0);
  const AddressRange kept = take(0);
  write(block, 0, "use");
  write(kept, 0, "use of another");
  reused_.free(block.begin);
  handles_.create(2);  // has the handle of stream 0
  ASSERT_EQ(take(2), block);
  EXPECT_EQ(reused_.statistics().device_waits, 1U);
  write(block, 2, "reuse");
  reused_.free(kept.begin);
  ASSERT_EQ(take(1), kept);
  write(kept, 1, "reuse of another");
  EXPECT_EQ(reused_.statistics().device_waits, 1U) << "all work of the old stream is done";
  EXPECT_EQ(first_finding(*device_), "");
}

TEST_F(EndsOfStreams, WithoutNoticeTheDeviceIsWaitedForWhenNoEventCanBeRecorded) {
  const AddressRange block = take(0);
  write(block, 0, "use");
  reused_.free(block.begin);
  handles_.destroy(0);
  ASSERT_EQ(take(1), block);
  EXPECT_EQ(reused_.statistics().device_waits, 1U);
  write(block, 1, "reuse");
  EXPECT_EQ(first_finding(*device_), "");
  EXPECT_THROW(reused_.allocate(1, ReusedHandles::handle(0)), InvalidArgument);
}

// The free neither waits nor records an event; the next user waits for the device, once.
TEST_F(EndsOfStreams, BlocksOfUnknownUsersAreWaitedForByTheDevice) {
  const AddressRange block = take(0);
  const AddressRange second = take(0);
  write(block, 0, "use");
  write(second, 1, "use that the pool has not been told of");
  reused_.free_unordered(block.begin);
  reused_.free_unordered(second.begin);
  EXPECT_THROW(reused_.free_unordered(block.begin), InvalidArgument);
  EXPECT_EQ(reused_.statistics().freed_unordered, 2U);
  EXPECT_EQ(reused_.statistics().device_waits, 0U);
  for (int i = 0; i < 2; ++i) {
    write(take(1), 1, "reuse");
  }
  EXPECT_EQ(reused_.statistics().device_waits, 1U);
  EXPECT_EQ(reused_.statistics().growths, 2U);
  EXPECT_EQ(reused_.statistics().streams_tracked, 2U);
  EXPECT_EQ(first_finding(*device_), "");
}

// The pool reuses the numbers of streams that are gone, so frontiers do not grow with all streams that ever
// were.
TEST_F(EndsOfStreams, AHundredStreamsComeAndGo) {
  for (StreamId i = 0; i < 100; ++i) {
    const StreamId stream = device_->create_stream("one of many");
    handles_.create(stream);
    const AddressRange block = take(stream);
    write(block, stream, "use");
    reused_.free(block.begin);
    reused_.forget(ReusedHandles::handle(stream));
    handles_.destroy(stream);
    if (i % 8 == 0) {
      device_->synchronize(device_->frontier(stream));
    }
  }
  EXPECT_EQ(reused_.statistics().all.blocks.added, 100U);
  EXPECT_EQ(reused_.statistics().all.blocks.removed, 100U);
  EXPECT_EQ(reused_.statistics().growths, 1U);
  EXPECT_EQ(first_finding(*device_), "");
}

// --- per-thread default streams ----------------------------------------------------------------------------

// One handle that means the first stream on the thread that made it, and the second stream on all other
// threads.
class PerThreadHandle final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  static StreamHandle handle() { return stream_handle(100); }

  bool is_of_thread(StreamHandle) const override { return true; }
  std::uint64_t stream_id(StreamHandle) override { return ForwardingBackend::stream_id(meant()); }
  EventHandle record(StreamHandle) override { return ForwardingBackend::record(meant()); }
  void wait(StreamHandle, EventHandle event) override { ForwardingBackend::wait(meant(), event); }

 private:
  StreamHandle meant() const { return stream_handle(std::this_thread::get_id() == first_ ? 0 : 1); }

  const std::thread::id first_ = std::this_thread::get_id();
};

class PerThreadStreams : public StreamPoolOrderTest {
 protected:
  static void on_another_thread(const std::function<void()>& work) { std::thread(work).join(); }
  AddressRange take() { return shared_.allocate(64 * kKiB, PerThreadHandle::handle()).value(); }

  PerThreadHandle handles_{*backend_};
  StreamPool shared_{handles_,
                     {.budget_bytes = 4096 * kKiB, .small_bytes = 64 * kKiB, .ends_are_told = true}};
};

TEST_F(PerThreadStreams, RecordAnEventWithEveryFree) {
  const AddressRange block = take();
  write(block, 0, "use");
  shared_.free(block.begin);
  EXPECT_EQ(shared_.statistics().events_recorded, 1U);
  on_another_thread([&] {
    ASSERT_EQ(take(), block);
    write(block, 1, "reuse on another thread");
  });
  EXPECT_EQ(shared_.statistics().stream_waits, 1U);
  EXPECT_EQ(shared_.statistics().device_waits, 0U);
  EXPECT_EQ(first_finding(*device_), "");
}

// Only an event on the stream itself can tell when the stream is done with the block. Regression: where ends
// of streams are reported, the pool recorded the event on the other thread's stream, which has the same
// handle.
TEST_F(PerThreadStreams, AFreeByAnotherThreadCostsAWaitForTheDevice) {
  const AddressRange block = take();
  write(block, 0, "use");
  on_another_thread([&] {
    shared_.free(block.begin);
    ASSERT_EQ(take(), block);
    write(block, 1, "reuse");
  });
  EXPECT_EQ(shared_.statistics().events_recorded, 0U);
  EXPECT_EQ(shared_.statistics().device_waits, 1U);
  EXPECT_EQ(first_finding(*device_), "");
}

}  // namespace
}  // namespace vdnn::stream_pool_order_test
