// Programs whose streams come and go, have gone without notice, or are many: what the pool asks of its
// backend, keeps and looks at for each request does not grow with what was before. Counted, not timed;
// bench/stream_pool_bench.cpp times it.

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/stream_programs.h"
#include "vdnn/stream_pool.h"

namespace vdnn {
namespace {

using bench::Done;
using bench::ManyStreams;
using bench::RequestLoop;
using bench::Requests;

constexpr std::uint64_t kMaxEvents = 1024;  // StreamPoolStatistics::events_held
constexpr std::uint64_t kMaxRetired = 128;  // see StreamPool::forget()
constexpr std::uint64_t kMaxTracked = 700;  // of streams that come and go

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

// Failed before: events of streams that had ended were never released, nor their numbers given again, so that
// both and the time of a request grew without bound.
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
  EXPECT_LE(late.second, 1000U * 32) << "streams that were looked at";
  EXPECT_LE(loop.backend().most_alive(), kMaxEvents);
  EXPECT_LE(loop.statistics().events_held, kMaxEvents);
  EXPECT_LE(loop.statistics().streams_tracked, GetParam().left_behind + kMaxTracked);
}

// Where blocks lie depends on what the program calls, not on how fast the device is.
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

// Failed before: caches of all streams were visited for each small block that found none.
TEST(StreamPoolScaleTest, ACallAsksNoMoreOfManyStreamsThanOfFew) {
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

// The host waits for a stream that has ended only when as many have ended since as are tracked.
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

}  // namespace
}  // namespace vdnn
