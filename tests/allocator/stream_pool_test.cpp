// The stream pool's contract, one promise at a time: sizes, misuse, limits, statistics, and refusals of its
// device.

#include "vdnn/stream_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/fakes/heap.h"
#include "vdnn/forwarding_backend.h"
#include "vdnn/sim_device.h"

namespace vdnn::stream_pool_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = kKiB * kKiB;
constexpr std::uint64_t kGranule = 64 * kKiB;  // of the simulated CPU

class StreamPoolTest : public ::testing::Test {
 protected:
  StreamPoolTest() {
    SimDeviceOptions options;
    options.profile = sim_profile("cpu");
    device_ = make_sim_device(options);
    device_->create_stream("first");
    device_->create_stream("second");
    backend_ = make_pool_backend(*device_);
  }
  StreamPool& make(const StreamPoolOptions& options) {
    pool_ = std::make_unique<StreamPool>(*backend_, options);
    return *pool_;
  }
  StreamPool& make() { return make({.budget_bytes = 4 * kMiB}); }

  const StreamHandle first_ = stream_handle(0);
  const StreamHandle second_ = stream_handle(1);
  std::unique_ptr<SimDevice> device_;
  std::unique_ptr<PoolBackend> backend_;
  std::unique_ptr<StreamPool> pool_;
};

// --- sizes -------------------------------------------------------------------------------------------------

TEST_F(StreamPoolTest, NothingIsOneByte) {
  StreamPool& pool = make();
  const auto block = pool.allocate(0, first_);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->bytes, 1U);
  EXPECT_EQ(pool.find(block->begin), block);
  pool.free(block->begin);
}

TEST_F(StreamPoolTest, SizesBeyondTheBudgetAreRefusedUpToTheLargest) {
  StreamPool& pool = make();
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bytes : {4 * kMiB + 1, kMax / 2, kMax - 511, kMax - 1, kMax}) {
    EXPECT_EQ(pool.allocate(bytes, first_), std::nullopt) << bytes;
    EXPECT_EQ(pool.allocate(bytes, first_, BlockLife::kPersistent), std::nullopt) << bytes;
    EXPECT_EQ(pool.allocate_ready(bytes), std::nullopt) << bytes;
    EXPECT_EQ(pool.shortage(bytes).asked, bytes);
  }
  EXPECT_EQ(pool.statistics().failures, 15U);
  EXPECT_EQ(pool.statistics().all.reserved.peak, 0U);
  EXPECT_TRUE(pool.allocate(4 * kMiB, first_));
}

// --- misuse ------------------------------------------------------------------------------------------------

TEST_F(StreamPoolTest, MisuseIsRefusedAndChangesNothing) {
  StreamPool& pool = make();
  StreamPool other(*backend_, {.budget_bytes = kMiB});
  const std::uint64_t small = pool.allocate(1000, first_)->begin;
  const std::uint64_t large = pool.allocate(2 * kMiB, first_)->begin;
  const std::uint64_t cached = pool.allocate(100, first_)->begin;
  const std::uint64_t merged = pool.allocate(100 * kKiB, second_, BlockLife::kPersistent)->begin;
  pool.free(cached);
  pool.free(merged);
  const std::uint64_t foreign = other.allocate(1000, first_)->begin;
  const StreamPoolStatistics before = pool.statistics();
  for (const std::uint64_t address : {std::uint64_t{0}, small + 1, small + 256, large + kMiB, cached, merged,
                                      foreign, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_THROW(pool.free(address), InvalidArgument);
    EXPECT_THROW(pool.free(address, first_), InvalidArgument);
    EXPECT_THROW(pool.free(address, second_), InvalidArgument);
    EXPECT_THROW(pool.free_idle(address), InvalidArgument);
    EXPECT_THROW(pool.used_on(address, first_), InvalidArgument);
    EXPECT_THROW(pool.used_on(address, second_), InvalidArgument);
    EXPECT_EQ(pool.find(address), std::nullopt);
  }
  EXPECT_EQ(pool.statistics().all.allocated, before.all.allocated);
  EXPECT_EQ(pool.statistics().all.active, before.all.active);
  EXPECT_TRUE(pool.owns(small + 1) && pool.owns(cached));
  EXPECT_FALSE(pool.owns(foreign) || pool.owns(0));
  pool.free(small);
  pool.free(large);
  try {
    pool.free(large);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(large)), HasSubstr("which is the pool's")));
  }
  try {
    pool.free(foreign);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("which is not the pool's"));
  }
}

TEST_F(StreamPoolTest, StreamsThatDoNotExistAreRefused) {
  StreamPool& pool = make();
  const std::uint64_t block = pool.allocate(1000, first_)->begin;
  for (const StreamHandle stream : {StreamHandle{nullptr}, stream_handle(2), stream_handle(1000000)}) {
    EXPECT_THROW(pool.allocate(1, stream), InvalidArgument);
    EXPECT_THROW(pool.free(block, stream), InvalidArgument);
    EXPECT_THROW(pool.used_on(block, stream), InvalidArgument);
  }
  pool.free(block);
  EXPECT_EQ(pool.statistics().all.blocks.current, 0U);
}

TEST_F(StreamPoolTest, OptionsThatCannotBeAreRefused) {
  EXPECT_THROW(make({.budget_bytes = kGranule - 1}), InvalidArgument);
  EXPECT_THROW(make({.small_bytes = 0}), InvalidArgument);
  EXPECT_THROW(make({.small_bytes = std::uint64_t{1} << 50}), InvalidArgument);
  EXPECT_THROW(make({.history_events = std::numeric_limits<std::size_t>::max()}), InvalidArgument);
}

TEST_F(StreamPoolTest, APoolThatDiesGivesBackWhatIsStillInUse) {
  make();
  ASSERT_TRUE(pool_->allocate(kMiB, first_) && pool_->allocate(1, second_));
  pool_.reset();
  EXPECT_EQ(device_->counters().committed_bytes, 0U);
}

// --- memory ------------------------------------------------------------------------------------------------

TEST_F(StreamPoolTest, KindsAreApart) {
  StreamPool& pool = make({.small_bytes = 10000});
  pool.allocate(10000, first_);
  pool.allocate(10001, first_);
  pool.allocate(5, first_, BlockLife::kPersistent);
  const StreamPoolStatistics now = pool.statistics();
  EXPECT_EQ(now.of(BlockKind::kSmall).requested.current, 10000U);
  EXPECT_EQ(now.of(BlockKind::kLarge).requested.current, 10001U);
  EXPECT_EQ(now.of(BlockKind::kPersistent).requested.current, 5U);
  EXPECT_EQ(now.all.requested.current, 20006U);
  EXPECT_EQ(now.all.reserved.current, kGranule);
  EXPECT_EQ(now.of(BlockKind::kSmall).reserved.current + now.of(BlockKind::kLarge).reserved.current +
                now.of(BlockKind::kPersistent).reserved.current,
            kGranule);
  for (const BlockKind kind : kAllBlockKinds) {
    EXPECT_GT(now.of(kind).reserved.current, 0U) << to_string(kind);
  }
}

TEST_F(StreamPoolTest, FragmentsMakeABlockWhereverTheyLie) {
  StreamPool& pool = make();
  std::vector<std::uint64_t> blocks(64);
  std::ranges::generate(blocks, [&] { return pool.allocate(kGranule, first_)->begin; });
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    pool.free(blocks[i]);
  }
  EXPECT_FALSE(pool.allocate(2 * kMiB + kGranule, first_));
  const auto large = pool.allocate(2 * kMiB, first_);
  ASSERT_TRUE(large);
  EXPECT_EQ(pool.statistics().all.reserved.current, 4 * kMiB);
  EXPECT_EQ(pool.statistics().retries, 1U) << "one for the refused request";
  // The fragments are used for single granules again.
  pool.free(large->begin);
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    EXPECT_TRUE(pool.allocate(kGranule, second_));
  }
  EXPECT_EQ(pool.statistics().all.reserved.peak, 4 * kMiB);
}

// Counts the mapped bytes and the calls that map.
class CountingMaps final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void map(AddressRange range, std::span<const GranuleHandle> granules) override {
    ForwardingBackend::map(range, granules);
    mapped_bytes += range.bytes;
    ++maps;
  }
  void unmap(AddressRange range) override {
    ForwardingBackend::unmap(range);
    mapped_bytes -= range.bytes;
  }

  std::uint64_t mapped_bytes = 0;
  std::uint64_t maps = 0;
};

TEST_F(StreamPoolTest, FragmentsThatWereMappedOnceAreTakenAgainAsTheyAre) {
  CountingMaps backend(*backend_);
  StreamPool pool(backend, {.budget_bytes = 4 * kMiB});
  std::vector<std::uint64_t> blocks(8);
  std::ranges::generate(blocks, [&] { return pool.allocate(kMiB / 2, first_)->begin; });
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    pool.free(blocks[i]);
  }
  const auto whole = pool.allocate(2 * kMiB, first_);
  const auto half = [&] { return pool.allocate(kMiB + 1, first_); };
  ASSERT_TRUE(whole);
  pool.free(whole->begin);
  const auto part = half();
  const std::uint64_t maps = backend.maps;
  const std::uint64_t heap = heap_allocations();
  for (int i = 0; i < 100; ++i) {
    pool.free(part->begin);
    ASSERT_EQ(pool.allocate(2 * kMiB, first_), whole);
    pool.free(whole->begin);
    ASSERT_EQ(half(), part);
    // The rest of the granule is available for other blocks.
    const auto rest = pool.allocate(2 * kGranule - 512, first_);
    ASSERT_TRUE(rest);
    pool.free(rest->begin);
  }
  EXPECT_EQ(backend.maps, maps);
  EXPECT_EQ(heap_allocations(), heap);
  EXPECT_EQ(pool.statistics().all.reserved.peak, 4 * kMiB);
}

// No size occurs twice. Address space is bounded, so the pool unmaps memory that has long been unused.
TEST_F(StreamPoolTest, EverOtherSizesAreServedWithinBoundedAddresses) {
  CountingMaps backend(*backend_);
  StreamPool pool(backend, {.budget_bytes = 8 * kMiB});
  std::vector<std::uint64_t> blocks(64);
  std::ranges::generate(blocks, [&] { return pool.allocate(2 * kGranule, first_)->begin; });
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    pool.free(blocks[i]);
  }
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t granules = 3; granules <= 64; ++granules) {
      const auto block = pool.allocate(granules * kGranule - round, second_);
      ASSERT_TRUE(block) << granules;
      pool.free(block->begin);
    }
  }
  EXPECT_GT(pool.statistics().host_waits, 0U) << "unmapping waits for the work on the memory";
  EXPECT_LE(backend.mapped_bytes, std::uint64_t{9} * 8 * kMiB);
  EXPECT_EQ(pool.statistics().all.reserved.peak, 8 * kMiB);
  for (std::size_t i = 1; i < blocks.size(); i += 2) {
    pool.free(blocks[i]);
  }
  pool.trim();
  EXPECT_EQ(backend.mapped_bytes, 0U);
  EXPECT_EQ(pool.snapshot().size(), 1U);
}

TEST_F(StreamPoolTest, ThePoolAsksTheProgramBeforeItFails) {
  std::vector<std::uint64_t> spare;
  std::uint64_t asked = 0;
  StreamPool& pool = make({.budget_bytes = 4 * kMiB, .on_exhausted = [&](std::uint64_t bytes) {
                             asked = bytes;
                             if (spare.empty()) {
                               return false;
                             }
                             pool_->free(spare.back());
                             spare.pop_back();
                             return true;
                           }});
  for (int i = 0; i < 4; ++i) {
    spare.push_back(pool.allocate(kMiB, first_)->begin);
  }
  EXPECT_TRUE(pool.allocate(2 * kMiB, second_));
  EXPECT_EQ(asked, 2 * kMiB);
  EXPECT_EQ(spare.size(), 2U);
  EXPECT_FALSE(pool.allocate(3 * kMiB, second_));
  EXPECT_EQ(pool.statistics().failures, 1U);
  EXPECT_EQ(pool.statistics().all.reserved.peak, 4 * kMiB);
}

TEST_F(StreamPoolTest, BeyondTheBudgetTheProgramIsNotAsked) {
  std::uint64_t asked = 0;
  StreamPool& pool =
      make({.budget_bytes = 4 * kMiB, .on_exhausted = [&](std::uint64_t) { return ++asked < 3; }});
  EXPECT_EQ(pool.allocate(4 * kMiB + 1, first_), std::nullopt);
  EXPECT_EQ(asked, 0U);
  const auto all = pool.allocate(4 * kMiB, first_);
  EXPECT_EQ(pool.allocate(4 * kMiB, first_), std::nullopt);
  EXPECT_EQ(asked, 3U);
  EXPECT_EQ(pool.statistics().failures, 2U);
  pool.free(all->begin);
}

TEST_F(StreamPoolTest, AboveTheMarkIdleMemoryIsGivenBack) {
  StreamPool& pool = make({.budget_bytes = 4 * kMiB, .high_water_bytes = kMiB, .cache_bytes = 0});
  std::vector<std::uint64_t> blocks(3);
  std::ranges::generate(blocks, [&] { return pool.allocate(kMiB, first_)->begin; });
  pool.free(blocks[0]);  // the pool records an event
  EXPECT_EQ(pool.statistics().all.reserved.current, 3 * kMiB);
  device_->synchronize_all();
  pool.free(blocks[1]);  // the pool sees that the event was reached
  EXPECT_EQ(pool.statistics().all.reserved.current, 2 * kMiB);
  EXPECT_EQ(pool.statistics().host_waits, 0U);
  device_->synchronize_all();
  pool.free(blocks[2]);
  EXPECT_EQ(pool.statistics().all.reserved.current, kMiB) << "down to the mark and no further";
}

TEST_F(StreamPoolTest, TrimKeepsWhatItIsToldTo) {
  StreamPool& pool = make();
  for (const std::uint64_t block : {pool.allocate(kMiB, first_)->begin, pool.allocate(1000, first_)->begin,
                                    pool.allocate(2 * kMiB, second_)->begin}) {
    pool.free(block);
  }
  const std::uint64_t kept = pool.allocate(1, first_, BlockLife::kPersistent)->begin;
  const std::uint64_t reserved = pool.statistics().all.reserved.current;
  EXPECT_EQ(pool.trim(reserved), 0U);
  EXPECT_EQ(pool.trim(reserved - 1), kGranule);
  EXPECT_EQ(pool.trim(), reserved - 2 * kGranule);
  EXPECT_EQ(pool.statistics().all.reserved.current, kGranule);
  pool.free(kept);
  EXPECT_EQ(pool.trim(), kGranule);
}

// --- figures -----------------------------------------------------------------------------------------------

TEST_F(StreamPoolTest, FiguresAreKeptByStreamToo) {
  StreamPool& pool = make();
  const std::uint64_t a = pool.allocate(1000, first_)->begin;
  const std::uint64_t b = pool.allocate(2 * kMiB, second_)->begin;
  pool.free(a, second_);
  pool.free(b);
  pool.allocate(10, second_);
  EXPECT_EQ(pool.statistics(first_).all.requested,
            (PoolFigure{.current = 0, .peak = 1000, .added = 1000, .removed = 1000}));
  EXPECT_EQ(pool.statistics(second_).all.requested,
            (PoolFigure{.current = 10, .peak = 2 * kMiB, .added = 2 * kMiB + 10, .removed = 2 * kMiB}));
  EXPECT_EQ(pool.statistics(second_).of(BlockKind::kSmall).blocks.added, 1U);
  pool.reset_peaks();
  EXPECT_EQ(pool.statistics(second_).all.requested.peak, 10U);
  EXPECT_EQ(pool.statistics().all.requested.peak, 10U);
  EXPECT_EQ(pool.statistics().all.reserved.peak, pool.statistics().all.reserved.current);
}

TEST_F(StreamPoolTest, APictureShowsKindsAndHoles) {
  StreamPool& pool = make();
  const std::uint64_t hole = pool.allocate(1.5 * kMiB, first_)->begin;
  pool.allocate(1.25 * kMiB, first_);
  pool.free(hole);
  pool.free(pool.allocate(100, first_)->begin);
  EXPECT_THAT(pool.picture(),
              AllOf(HasSubstr("small blocks\n"), HasSubstr("in caches of streams: 1, 256 bytes"),
                    HasSubstr("large blocks\n  segments: 1, 2.688 MiB"), HasSubstr("in use: 1, 1.25 MiB"),
                    HasSubstr("    of 1.438 MiB"), HasSubstr("persistent blocks\n  segments: 0, 0 bytes")));
}

// The history has only the latest events, of all threads and caches, refusals included.
TEST_F(StreamPoolTest, HistoryTellsTheLatestEvents) {
  StreamPool& pool = make({.name = "mine", .budget_bytes = 4 * kMiB, .history_events = 5});
  EXPECT_THAT(pool.history(), ::testing::IsEmpty());
  const AddressRange first = pool.allocate(1000, first_).value();
  pool.free(first.begin);
  const AddressRange again = pool.allocate(900, first_).value();
  const AddressRange large = pool.allocate(kMiB, second_).value();
  EXPECT_FALSE(pool.allocate(8 * kMiB, second_));
  pool.free_idle(large.begin);
  EXPECT_THROW(pool.free(large.begin), InvalidArgument);
  const std::vector<PoolEvent> events = pool.history();
  using Kind = PoolEvent::Kind;
  const std::vector<std::pair<Kind, AddressRange>> wanted{{Kind::kFreed, first},
                                                          {Kind::kAllocated, again},
                                                          {Kind::kAllocated, large},
                                                          {Kind::kRefused, {.begin = 0, .bytes = 8 * kMiB}},
                                                          {Kind::kFreed, large}};
  ASSERT_EQ(events.size(), wanted.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(std::pair(events[i].kind, events[i].range), wanted[i]) << i;
    EXPECT_EQ(events[i].stream_id, backend_->stream_id(i < 2 ? first_ : second_)) << i;
    EXPECT_TRUE(i == 0 || events[i - 1].microseconds <= events[i].microseconds);
    EXPECT_TRUE(events[i].frames.empty());
  }
  EXPECT_THAT(pool.picture(), HasSubstr("mine: committed"));
}

TEST_F(StreamPoolTest, HistoryHasStacksOnRequest) {
  StreamPool& pool = make({.budget_bytes = 4 * kMiB, .history_events = 4, .stack_traces = true});
  pool.free(pool.allocate(1000, first_)->begin);
  pool.free(pool.allocate(1000, first_)->begin);
  for (const PoolEvent& event : pool.history()) {
    EXPECT_GT(event.frames.size(), 3U);
  }
}

// --- refusals ----------------------------------------------------------------------------------------------

// The n-th call from now on fails. Counts each kind of call that a pool makes.
class Refusing final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void fail(std::uint64_t nth) { left_ = nth; }

  AddressRange reserve(std::uint64_t bytes) override { return count(), ForwardingBackend::reserve(bytes); }
  GranuleHandle create_granule() override { return count(), ForwardingBackend::create_granule(); }
  void destroy_granule(GranuleHandle granule) override {
    count(), ForwardingBackend::destroy_granule(granule);
  }
  void map(AddressRange range, std::span<const GranuleHandle> granules) override {
    count(), ForwardingBackend::map(range, granules);
  }
  void unmap(AddressRange range) override { count(), ForwardingBackend::unmap(range); }
  std::uint64_t stream_id(StreamHandle stream) override {
    return count(), ForwardingBackend::stream_id(stream);
  }
  bool is_capturing(StreamHandle stream) override { return count(), ForwardingBackend::is_capturing(stream); }
  EventHandle record(StreamHandle stream) override { return count(), ForwardingBackend::record(stream); }
  void wait(StreamHandle stream, EventHandle event) override {
    count(), ForwardingBackend::wait(stream, event);
  }
  bool reached(EventHandle event) override { return count(), ForwardingBackend::reached(event); }
  void synchronize(EventHandle event) override { count(), ForwardingBackend::synchronize(event); }

 private:
  void count() {
    if (left_ != 0 && --left_ == 0) {
      throw DeviceError("refused");
    }
  }

  std::uint64_t left_ = 0;
};

// A failed call changes nothing except, perhaps, the committed bytes; the same call works the next time.
TEST_F(StreamPoolTest, AfterARefusalTheSameCallWorks) {
  std::uint64_t refused = 0;
  for (std::uint64_t nth = 1; nth < 200; ++nth) {
    Refusing backend(*backend_);
    StreamPool pool(backend, {.budget_bytes = 4 * kMiB, .high_water_bytes = 3 * kMiB, .cache_bytes = 0});
    backend.fail(nth);
    const auto again = [&](const auto& call) {
      const StreamPoolStatistics before = pool.statistics();
      try {
        return call();
      } catch (const DeviceError&) {
        ++refused;
        EXPECT_EQ(pool.statistics().all.allocated, before.all.allocated);
        EXPECT_EQ(pool.statistics().all.active.current, before.all.active.current);
        EXPECT_EQ(pool.statistics().all.reserved.current, device_->counters().committed_bytes);
        return call();
      }
    };
    const auto allocate = [&](std::uint64_t bytes, StreamHandle stream) {
      return again([&] { return pool.allocate(bytes, stream); }).value().begin;
    };
    const auto free = [&](std::uint64_t block) { again([&] { return pool.free(block), 0; }); };
    std::vector<std::uint64_t> blocks;
    blocks.reserve(8);
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(allocate(512 * kKiB, i % 2 == 0 ? first_ : second_));
    }
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
      free(blocks[i]);
    }
    again([&] { return pool.used_on(blocks[1], first_), 0; });
    free(blocks[1]);
    blocks[0] = allocate(1536 * kKiB, second_);
    blocks[1] = again([&] { return pool.allocate_ready(512 * kKiB); }).value().begin;
    for (const std::size_t i : {0, 1, 3, 5, 7}) {
      free(blocks[i]);
    }
    again([&] { return pool.forget(first_), 0; });
    again([&] { return pool.trim(), 0; });
    EXPECT_EQ(pool.statistics().all.reserved.current, 0U);
    EXPECT_EQ(pool.snapshot().size(), 1U);
  }
  EXPECT_GT(refused, 30U);
}

// --- the pool's own memory ---------------------------------------------------------------------------------

// A call that lacks host memory for the pool's bookkeeping changes nothing, either.
TEST_F(StreamPoolTest, WithoutHostMemoryTheSameCallWorksTheNextTime) {
  std::uint64_t refused = 0;
  for (std::uint64_t nth = 1; nth < 100; ++nth) {
    StreamPool pool(*backend_, {.budget_bytes = 4 * kMiB, .cache_bytes = 4 * kKiB});
    std::vector<std::uint64_t> blocks;
    blocks.reserve(16);
    {
      const HeapFailure failure(nth);
      const auto again = [&](const auto& call) {
        try {
          return call();
        } catch (const std::bad_alloc&) {
          ++refused;
          return call();
        }
      };
      for (const std::uint64_t bytes : {100, 2000, 70000, 1500000, 100, 2000}) {
        for (const StreamHandle stream : {first_, second_}) {
          if (const auto block = again([&] { return pool.allocate(bytes, stream); })) {
            blocks.push_back(block->begin);
          }
        }
      }
      again([&] { return pool.used_on(blocks[0], second_), 0; });
      for (const std::uint64_t block : blocks) {
        again([&] { return pool.free(block), 0; });
      }
      blocks[0] = again([&] { return pool.allocate_ready(3000000); })->begin;
    }
    EXPECT_EQ(pool.statistics().all.blocks.current, 1U);
    pool.free(blocks[0]);
    pool.trim();
    EXPECT_EQ(pool.snapshot().size(), 1U) << nth;
  }
  EXPECT_GT(refused, 30U);
}

// Frontiers of many streams are on the heap, which is exhausted for a while. Regression: the pool could not
// put back the memory that it had taken for a block. That memory was lost, or both in use and free.
TEST_F(StreamPoolTest, WithoutHostMemoryForFrontiersOfManyStreamsNothingIsLost) {
  constexpr StreamId kStreams = 9;
  for (StreamId stream = 2; stream < kStreams + 2; ++stream) {
    device_->create_stream("one of many");
  }
  std::uint64_t refused = 0;
  for (std::uint64_t nth = 1; nth < 80; ++nth) {
    for (const std::uint64_t bytes : {std::uint64_t{1000}, 8 * kGranule, 3 * kGranule + 1}) {
      StreamPool pool(*backend_, {.budget_bytes = 32 * kGranule, .cache_bytes = 0});
      // Frees every second granule, after uses on all streams.
      std::vector<std::uint64_t> blocks(32);
      std::ranges::generate(blocks, [&] { return pool.allocate(kGranule, first_)->begin; });
      const auto used_by_all = [&](std::uint64_t block) {
        for (StreamId stream = 2; stream < kStreams + 2; ++stream) {
          pool.used_on(block, stream_handle(stream));
        }
      };
      for (std::size_t i = 0; i < blocks.size(); i += 2) {
        used_by_all(blocks[i]);
        pool.free(blocks[i]);
      }
      std::optional<AddressRange> block;
      const auto attempt = [&](const auto& call) {
        const HeapFailure failure(nth, HeapFailure::Kind::kFromThenOn);
        try {
          call();
        } catch (const std::bad_alloc&) {
          ++refused;
        }
      };
      attempt([&] { block = pool.allocate(bytes, second_); });
      if (!block) {
        block = pool.allocate(bytes, second_);
      }
      ASSERT_TRUE(block) << nth << " of " << bytes;
      used_by_all(block->begin);
      attempt([&] { pool.free(block->begin); });
      if (pool.find(block->begin)) {
        pool.free(block->begin);
      }
      pool.trim(24 * kGranule);
      EXPECT_FALSE(pool.snapshot().empty());
      for (std::size_t i = 1; i < blocks.size(); i += 2) {
        pool.free(blocks[i]);
      }
      ASSERT_TRUE(pool.allocate(32 * kGranule, second_)) << nth << " of " << bytes;
    }
  }
  EXPECT_GT(refused, 100U);
}

TEST_F(StreamPoolTest, InTheSteadyStateNothingIsTakenFromTheHeap) {
  StreamPool& pool = make();
  const auto step = [&] {
    for (const std::uint64_t bytes : {100, 2000, 70000, 1500000}) {
      const std::uint64_t block = pool.allocate(bytes, first_)->begin;
      pool.free(pool.allocate(bytes, first_)->begin);
      pool.free(block);
    }
  };
  step();
  step();
  const std::uint64_t before = heap_allocations();
  step();
  EXPECT_EQ(heap_allocations(), before);
}

}  // namespace
}  // namespace vdnn::stream_pool_test
