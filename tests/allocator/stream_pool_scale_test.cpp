// Programs whose streams come and go, end without notice, or are many. The pool's backend calls, memory and
// search per request do not grow with the program's history. These tests count calls;
// bench/stream_pool_bench.cpp measures times.

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/stream_programs.h"
#include "vdnn/forwarding_backend.h"
#include "vdnn/stream_pool.h"

namespace vdnn::stream_pool_scale_test {
namespace {

using bench::CountingStreams;
using bench::Done;
using bench::ManyStreams;
using bench::RequestLoop;
using bench::Requests;

constexpr std::uint64_t kMaxEvents = 1024;             // StreamPoolStatistics::events_held
constexpr std::uint64_t kMaxRetired = 128;             // see StreamPool::forget()
constexpr std::uint64_t kMaxTracked = 700;             // among streams that come and go
constexpr std::uint64_t kMaxVanishedInCapture = 1024;  // see StreamPool

std::vector<Requests> all_requests() {
  constexpr std::uint64_t kLarge = std::uint64_t{4} << 20;
  return {{.name = "Small"},
          {.name = "Large", .bytes = kLarge},
          {.name = "LargeDoneLate", .bytes = kLarge, .done = Done::kLate},
          {.name = "SmallNeverDone", .done = Done::kNever},
          {.name = "LargeNeverDone", .bytes = kLarge, .done = Done::kNever},
          {.name = "SmallUntold", .is_told = false},
          {.name = "LargeUntold", .bytes = kLarge, .is_told = false},
          {.name = "SmallUntoldHandlesNotReused", .is_told = false, .handles = 200000},
          {.name = "LargeUntoldHandlesNotReused", .bytes = kLarge, .is_told = false, .handles = 200000},
          {.name = "SmallThreads", .is_told = false, .of_thread = true, .handles = 200000},
          {.name = "LargeThreads", .bytes = kLarge, .is_told = false, .of_thread = true, .handles = 200000},
          {.name = "LargeThreadsNeverDone",
           .bytes = kLarge,
           .is_told = false,
           .done = Done::kNever,
           .of_thread = true,
           .handles = 200000},
          {.name = "LargeAfterThousandLeftBehind", .bytes = kLarge, .is_told = false, .left_behind = 1000},
          {.name = "SmallToldAfterThousandLeftBehind", .left_behind = 1000}};
}

class StreamPoolScale : public ::testing::TestWithParam<Requests> {};

INSTANTIATE_TEST_SUITE_P(All, StreamPoolScale, ::testing::ValuesIn(all_requests()),
                         [](const auto& test) { return test.param.name; });

// Regression: the pool neither released events of ended streams nor reused the streams' numbers. Events,
// numbers and the time of a request grew without bound.
TEST_P(StreamPoolScale, ALateRequestAsksAndKeepsNoMoreThanAnEarlyOne) {
  RequestLoop loop(GetParam());
  loop.run(100);
  const auto cost_of_1000 = [&] {
    const std::uint64_t calls = loop.backend().calls();
    const std::uint64_t visited = loop.statistics().streams_visited;
    loop.run(1000);
    return std::pair(loop.backend().calls() - calls, loop.statistics().streams_visited - visited);
  };
  const auto early = cost_of_1000();
  loop.run(98900);
  const auto late = cost_of_1000();
  EXPECT_LE(late.first, 2 * early.first) << "calls of the backend";
  EXPECT_LE(late.second, 1000U * 32) << "visits of streams";
  EXPECT_LE(loop.backend().most_alive(), kMaxEvents);
  EXPECT_LE(loop.statistics().events_held, kMaxEvents);
  EXPECT_LE(loop.statistics().streams_tracked, GetParam().left_behind + kMaxTracked);
}

// Placement depends on the program's calls, not on the speed of the device.
TEST(StreamPoolScaleTest, PlacementDoesNotDependOnTheDevicesSpeed) {
  for (const bool of_thread : {false, true}) {
    for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{4} << 20}) {
      const auto addresses = [&](Done done) {
        return RequestLoop({.bytes = bytes, .is_told = !of_thread, .done = done, .of_thread = of_thread})
            .run(3000);
      };
      const std::vector<std::uint64_t> fast = addresses(Done::kAtOnce);
      EXPECT_EQ(addresses(Done::kLate), fast);
      EXPECT_EQ(addresses(Done::kNever), fast);
    }
  }
}

// Regression: if the cache of the requesting stream had no small block, the pool visited the caches of all
// streams.
TEST(StreamPoolScaleTest, ACallVisitsNoMoreStreamsOfManyThanOfFew) {
  constexpr int kCalls = 40000;
  for (const std::uint64_t most_bytes : {std::uint64_t{64} << 10, std::uint64_t{8} << 20}) {
    for (const Done done : {Done::kAtOnce, Done::kNever}) {
      ManyStreams program(512, most_bytes, done);
      program.run(kCalls);
      const std::uint64_t calls = program.backend().calls();
      const std::uint64_t visited = program.statistics().streams_visited;
      program.run(kCalls);
      EXPECT_LE(program.statistics().streams_visited - visited, std::uint64_t{kCalls});
      EXPECT_LE(program.backend().calls() - calls, std::uint64_t{6} * kCalls);
      EXPECT_LE(program.backend().most_alive(), kMaxEvents);
      EXPECT_LE(program.statistics().streams_tracked, 512U);
      EXPECT_EQ(program.statistics().host_waits + program.statistics().device_waits, 0U);
    }
  }
}

TEST(StreamPoolScaleTest, PlacementAmongManyStreamsDoesNotDependOnTheDevicesSpeed) {
  const auto addresses = [](Done done) { return ManyStreams(512, std::uint64_t{1} << 20, done).run(20000); };
  const std::vector<std::uint64_t> fast = addresses(Done::kAtOnce);
  EXPECT_EQ(addresses(Done::kLate), fast);
  EXPECT_EQ(addresses(Done::kNever), fast);
}

// The host waits for an ended stream only once more streams have ended than the pool tracks (kMaxRetired).
TEST(StreamPoolScaleTest, TheHostIsFarAheadBeforeItWaits) {
  RequestLoop loop({.bytes = std::uint64_t{4} << 20, .done = Done::kNever});
  loop.run(kMaxRetired);
  EXPECT_EQ(loop.statistics().host_waits, 0U);
  loop.run(100);
  EXPECT_GT(loop.statistics().host_waits, 0U);
  RequestLoop late({.bytes = std::uint64_t{4} << 20, .done = Done::kLate});
  late.run(1000);
  EXPECT_EQ(late.statistics().host_waits, 0U);
}

// --- streams that have vanished ----------------------------------------------------------------------------

// During a capture the pool cannot wait for the device.
class OneIsCaptured final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void capture(StreamHandle stream) { captured_ = stream; }

  bool is_capturing(StreamHandle stream) override { return stream == captured_; }
  void synchronize_all() override {
    if (captured_ != nullptr) {
      throw CaptureConflict("a stream is being captured");
    }
    ForwardingBackend::synchronize_all();
  }

 private:
  StreamHandle captured_ = nullptr;
};

// Handle 0 is a stream that stays and has a small block. Work of the other streams is never done.
class StreamPoolVanished : public ::testing::Test {
 protected:
  static constexpr std::size_t kHandles = 400;
  static constexpr std::uint64_t kSmall = 4096;
  static constexpr std::uint64_t kLarge = std::uint64_t{4} << 20;

  StreamPoolVanished() : stays_(streams_.create(0)) { pool_.allocate(kSmall, stays_); }

  void come_and_go(int streams) {
    for (int i = 0; i < streams; ++i) {
      const StreamHandle stream = streams_.create(1);
      pool_.free(pool_.allocate(kLarge, stream)->begin);
      pool_.forget(stream);
      streams_.destroy(stream);
    }
  }
  // For each stream that vanishes, another stream gets its handle and has a block.
  void vanish(std::size_t streams) {
    for (std::size_t handle = 2; handle < 2 + streams; ++handle) {
      pool_.free(pool_.allocate(kLarge, streams_.create(handle))->begin);
      pool_.allocate(kSmall, streams_.create(handle));
    }
  }

  CountingStreams streams_{kHandles, Done::kNever, /*of_thread=*/false};
  OneIsCaptured backend_{streams_};
  StreamPool pool_{backend_, {}};
  const StreamHandle stays_;
};

// Regression: instead of waiting for the ended streams, the pool tried to wait for the device. A capture
// forbids this, so no later stream was settled.
TEST_F(StreamPoolVanished, DuringACaptureOthersThatEndAreSettled) {
  pool_.free_unordered(pool_.allocate(kSmall, stays_)->begin);
  backend_.capture(stays_);
  come_and_go(3000);
  EXPECT_LE(pool_.statistics().events_held, kMaxRetired + 1);
  EXPECT_LE(pool_.statistics().streams_tracked, kMaxRetired + 3);
  EXPECT_EQ(pool_.statistics().device_waits, 0U);
}

TEST_F(StreamPoolVanished, DuringACaptureOthersThatEndAreSettledBesideMany) {
  constexpr std::size_t kMany = 300;
  backend_.capture(stays_);
  vanish(kMany);
  come_and_go(3000);
  EXPECT_LE(pool_.statistics().events_held, kMaxEvents);
  EXPECT_LE(pool_.statistics().streams_tracked, 2 * kMany + kMaxRetired + 3);
  EXPECT_EQ(pool_.statistics().device_waits, 0U);
  backend_.capture(nullptr);
  vanish(1);
  EXPECT_GT(pool_.statistics().device_waits, 0U);
  EXPECT_LE(pool_.statistics().streams_tracked, kMany + kMaxRetired + 5);
}

// Regression: there was no bound, and each further stream made the clocks of all streams longer.
TEST_F(StreamPoolVanished, DuringACaptureThereIsABoundBeyondWhichNewStreamsAreRefused) {
  backend_.capture(stays_);
  std::size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      EXPECT_TRUE(pool_.allocate(kSmall, streams_.create(2)));
    } catch (const CaptureConflict&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_LE(pool_.statistics().streams_tracked, kMaxVanishedInCapture + 3);
  EXPECT_TRUE(pool_.allocate(kSmall, stays_)) << "the pool knows this stream already";
  backend_.capture(nullptr);
  EXPECT_TRUE(pool_.allocate(kSmall, streams_.create(2)));
  EXPECT_LE(pool_.statistics().streams_tracked, 3U);
}

// Regression: at the 128th end of a stream after the unordered free, the pool waited for the device.
TEST_F(StreamPoolVanished, WhatNobodyTakesIsWaitedForByNobody) {
  pool_.free_unordered(pool_.allocate(kSmall, stays_)->begin);
  come_and_go(3000);
  EXPECT_EQ(pool_.statistics().device_waits, 0U);
  pool_.allocate(kSmall, streams_.create(1));
  EXPECT_EQ(pool_.statistics().device_waits, 1U);
}

// The pool asks each existing stream whether it is captured, and counts the visit. Regression: it did not
// count the visit.
TEST_F(StreamPoolVanished, AWaitForTheDeviceVisitsStreamsThatAreThere) {
  constexpr std::size_t kThere = 50;
  come_and_go(3000);
  const auto visited_by_wait = [&] {
    pool_.free_unordered(pool_.allocate(kSmall, stays_)->begin);
    const StreamPoolStatistics before = pool_.statistics();
    pool_.allocate(kSmall, streams_.create(1));
    EXPECT_EQ(pool_.statistics().device_waits, before.device_waits + 1);
    return pool_.statistics().streams_visited - before.streams_visited;
  };
  visited_by_wait();  // also visits streams that have ended
  EXPECT_LE(visited_by_wait(), 8U);
  for (std::size_t i = 0; i < kThere; ++i) {
    pool_.allocate(kSmall, streams_.create(2 + i));
  }
  const std::uint64_t visited = visited_by_wait();
  EXPECT_GE(visited, kThere);
  EXPECT_LE(visited, kThere + 8);
}

// --- threads whose blocks others free ----------------------------------------------------------------------

enum class FreedBy : std::uint8_t { kOtherStream, kIdle, kUnordered };

class StreamPoolThreads : public ::testing::TestWithParam<FreedBy> {};

INSTANTIATE_TEST_SUITE_P(All, StreamPoolThreads,
                         ::testing::Values(FreedBy::kOtherStream, FreedBy::kIdle, FreedBy::kUnordered));

// Regression: the pool remembered a thread's stream forever if the stream was quiet while it had a block.
TEST_P(StreamPoolThreads, AreForgottenOnceTheirBlocksAreFreed) {
  constexpr std::size_t kThreads = 10000;
  constexpr std::size_t kBehind = 1000;  // blocks in use at a time
  CountingStreams streams(kThreads + 1, Done::kAtOnce, /*of_thread=*/true);
  StreamPool pool(streams, {});
  const StreamHandle other = streams.create(kThreads);
  std::vector<std::uint64_t> blocks;
  const auto free = [&](std::uint64_t block) {
    GetParam() == FreedBy::kOtherStream ? pool.free(block, other)
    : GetParam() == FreedBy::kIdle      ? pool.free_idle(block)
                                        : pool.free_unordered(block);
  };
  for (std::size_t i = 0; i < kThreads; ++i) {
    blocks.push_back(pool.allocate(4096, streams.create(i)).value().begin);
    if (i >= kBehind) {
      free(blocks[i - kBehind]);
    }
  }
  std::size_t known = 0;
  for (std::size_t i = 0; i < kThreads; ++i) {
    const StreamHandle thread = stream_handle(static_cast<StreamId>(i));
    known += pool.statistics(thread).all.blocks.added != 0 ? 1U : 0U;
  }
  EXPECT_LE(known, kBehind + kMaxTracked);
  EXPECT_EQ(pool.statistics().all.blocks.added, kThreads) << "includes blocks of forgotten threads";
  EXPECT_EQ(pool.statistics().all.blocks.removed, kThreads - kBehind);
}

}  // namespace
}  // namespace vdnn::stream_pool_scale_test
