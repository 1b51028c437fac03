// Programs whose streams come and go, have gone without notice, or are many: what the pool asks of its
// backend, keeps and looks at for each request does not grow with what was before. Counted, not timed;
// bench/stream_pool_bench.cpp times it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/null_backend.h"
#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/stream_pool.h"

namespace vdnn {
namespace {

constexpr std::uint64_t kMaxEvents = 1024;  // StreamPoolStatistics::events_held
constexpr std::uint64_t kMaxRetired = 128;  // see StreamPool::forget()
constexpr std::uint64_t kMaxTracked = 700;  // of streams that come and go

enum class Done { kAtOnce, kLate, kNever };

// Streams that are created and destroyed; a handle is given again. Counts what it is asked.
class CountingStreams final : public bench::NullBackend {
 public:
  CountingStreams(std::size_t handles, Done done, bool of_thread)
      : NullBackend(std::uint64_t{256} << 30), ids_(handles), done_(done), of_thread_(of_thread) {}

  StreamHandle create(std::size_t handle) {
    ids_[handle] = ++created_;
    return stream_handle(static_cast<StreamId>(handle));
  }
  void destroy(StreamHandle stream) { ids_[index_of(stream)] = 0; }

  std::uint64_t stream_id(StreamHandle stream) override {
    ++calls_;
    const std::uint64_t id = ids_[index_of(stream)];
    if (id == 0) {
      throw InvalidArgument("no such stream");
    }
    return id;
  }
  bool is_of_thread(StreamHandle) const override { return of_thread_; }
  EventHandle record(StreamHandle) override {
    ++calls_;
    ++alive_;
    most_alive_ = std::max(most_alive_, alive_);
    return reinterpret_cast<EventHandle>(++recorded_);  // NOLINT(performance-no-int-to-ptr)
  }
  void wait(StreamHandle, EventHandle) override { ++calls_; }
  bool reached(EventHandle event) override {
    ++calls_;
    const std::uint64_t late = done_ == Done::kLate ? 100 : 0;
    return done_ != Done::kNever && reinterpret_cast<std::uintptr_t>(event) + late <= recorded_;
  }
  void synchronize(EventHandle) override { ++calls_; }
  void synchronize_all() override { ++calls_; }
  void release(EventHandle) noexcept override { --alive_; }

  std::uint64_t calls() const { return calls_; }
  std::uint64_t most_alive() const { return most_alive_; }

 private:
  static std::size_t index_of(StreamHandle stream) { return reinterpret_cast<std::uintptr_t>(stream) - 1; }

  std::vector<std::uint64_t> ids_;  // by handle; 0: there is none
  const Done done_;
  const bool of_thread_;
  std::uint64_t created_ = 0;
  std::uintptr_t recorded_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t alive_ = 0;
  std::uint64_t most_alive_ = 0;
};

struct Requests {
  std::string name;
  std::uint64_t bytes = 4096;
  bool is_told = true;          // of the end of each stream
  Done done = Done::kAtOnce;    // what streams are given
  bool of_thread = false;       // each is another thread's default stream, whose end nobody tells
  std::size_t handles = 8;      // that are given in turn
  std::size_t left_behind = 0;  // streams that went without notice before, each with a block in use
};

class RequestLoop {
 public:
  explicit RequestLoop(const Requests& requests)
      : requests_(requests),
        backend_(requests.handles + requests.left_behind, requests.done, requests.of_thread) {
    for (std::size_t i = 0; i < requests.left_behind; ++i) {
      const StreamHandle stream = backend_.create(requests.handles + i);
      pool_.allocate(requests.bytes, stream);
      backend_.destroy(stream);
    }
  }

  // Where blocks lie, in the order of requests.
  std::vector<std::uint64_t> run(std::uint64_t requests) {
    std::vector<std::uint64_t> addresses;
    for (std::uint64_t i = 0; i < requests; ++i) {
      request();
      addresses.push_back(blocks_.at((next_ - 1) % kAtOnce));
    }
    return addresses;
  }

  CountingStreams& backend() { return backend_; }
  StreamPoolStatistics statistics() const { return pool_.statistics(); }

 private:
  static constexpr std::size_t kAtOnce = 8;

  void request() {
    const std::size_t slot = next_ % kAtOnce;
    if (handles_.at(slot) != nullptr) {
      pool_.free(blocks_.at(slot));
      if (requests_.is_told) {
        pool_.forget(handles_.at(slot));
      }
      backend_.destroy(handles_.at(slot));
    }
    handles_.at(slot) = backend_.create(next_++ % requests_.handles);
    const std::uint64_t passing = pool_.allocate(2 * requests_.bytes, handles_.at(slot))->begin;
    blocks_.at(slot) = pool_.allocate(requests_.bytes, handles_.at(slot))->begin;
    pool_.free(passing);
  }

  const Requests requests_;
  CountingStreams backend_;
  StreamPool pool_{backend_, {}};
  std::array<StreamHandle, kAtOnce> handles_{};
  std::array<std::uint64_t, kAtOnce> blocks_{};
  std::uint64_t next_ = 0;
};

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

// Blocks come and go at random on streams that stay.
class ManyStreams {
 public:
  ManyStreams(StreamId streams, std::uint64_t most_bytes, Done done)
      : streams_(streams), most_bytes_(most_bytes), backend_(streams, done, false) {
    for (StreamId stream = 0; stream < streams; ++stream) {
      backend_.create(stream);
    }
  }

  std::vector<std::uint64_t> run(int calls) {
    std::vector<std::uint64_t> addresses;
    for (int i = 0; i < calls; ++i) {
      if (blocks_.size() < 1024 && random_.below(2) == 0) {
        const std::uint64_t bytes = 1 + random_.below(most_bytes_);
        const StreamHandle stream = stream_handle(static_cast<StreamId>(random_.below(streams_)));
        blocks_.push_back(pool_.allocate(bytes, stream)->begin);
        addresses.push_back(blocks_.back());
      } else if (!blocks_.empty()) {
        std::swap(blocks_[random_.below(blocks_.size())], blocks_.back());
        pool_.free(blocks_.back());
        blocks_.pop_back();
      }
    }
    return addresses;
  }
  CountingStreams& backend() { return backend_; }
  StreamPoolStatistics statistics() const { return pool_.statistics(); }

 private:
  const StreamId streams_;
  const std::uint64_t most_bytes_;
  SplitMix64 random_{1};
  CountingStreams backend_;
  StreamPool pool_{backend_, {}};
  std::vector<std::uint64_t> blocks_;
};

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
