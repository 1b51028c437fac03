// What allocate and free of the stream pool cost, on a backend on which nothing happens: from the cache of a
// stream and beside it, in the orders of a stack, of a queue and at random, beside few and many blocks that
// lie idle; and what two threads on two streams do in the time of one.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/null_backend.h"
#include "bench/side_by_side.h"
#include "src/base/random.h"
#include "vdnn/stream_pool.h"

namespace vdnn::bench {
namespace {

constexpr int kBatch = 16;     // blocks that are taken before they are given back
constexpr int kBatches = 500;  // a run
constexpr int kPairs = kBatch * kBatches;

enum class Order { kStack, kQueue, kRandom };

// Takes and gives back `kBatch` blocks at a time.
class Pairs {
 public:
  Pairs(StreamPool& pool, StreamId stream, std::uint64_t bytes, Order order)
      : pool_(pool), stream_(stream_handle(stream)), bytes_(bytes), blocks_(kBatch), order_(kBatch) {
    SplitMix64 random(1);
    for (int i = 0; i < kBatch; ++i) {
      order_[i] = order == Order::kStack ? kBatch - 1 - i : i;
    }
    if (order == Order::kRandom) {
      for (std::size_t i = order_.size(); i > 1; --i) {
        std::swap(order_[i - 1], order_[random.below(i)]);
      }
    }
  }

  void operator()() {
    for (int batch = 0; batch < kBatches; ++batch) {
      for (std::uint64_t& block : blocks_) {
        block = pool_.allocate(bytes_, stream_)->begin;
      }
      for (const std::size_t each : order_) {
        pool_.free(blocks_[each]);
      }
    }
  }

 private:
  StreamPool& pool_;
  StreamHandle stream_;
  std::uint64_t bytes_;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::size_t> order_;
};

// A pool in which so many blocks of the stream lie idle.
class IdlePool {
 public:
  explicit IdlePool(int idle) {
    for (int i = 0; i < idle; ++i) {
      pool.allocate(std::uint64_t{512} * (1 + i % 8), stream_handle(0));
    }
  }

  NullBackend backend{std::uint64_t{256} << 30};
  StreamPool pool{backend, {}};
};

double nanoseconds_a_call(double seconds) {
  return seconds * 1e9 / (2 * kPairs);
}

// Ten idle blocks beside a million.
void by_idle_blocks(benchmark::State& state, std::uint64_t bytes) {
  IdlePool few(10);
  IdlePool many(1000000);
  std::vector<Contender> contenders;
  for (const auto& [name, order] : {std::pair("stack", Order::kStack), std::pair("queue", Order::kQueue),
                                    std::pair("random", Order::kRandom)}) {
    contenders.push_back({std::string(name) + " 10 ns", Pairs(few.pool, 0, bytes, order)});
    contenders.push_back({std::string(name) + " 1M ns", Pairs(many.pool, 0, bytes, order)});
  }
  const std::vector<Figures> figures = side_by_side(state, contenders, nanoseconds_a_call);
  report_ratio(state, "stack 1M/10", figures[1], figures[0]);
  report_ratio(state, "queue 1M/10", figures[3], figures[2]);
  report_ratio(state, "random 1M/10", figures[5], figures[4]);
}
BENCHMARK_CAPTURE(by_idle_blocks, small, 4096)->Name("stream_pool/small")->UseManualTime();
BENCHMARK_CAPTURE(by_idle_blocks, large, 4 << 20)->Name("stream_pool/large")->UseManualTime();

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds_of(Pairs& pairs) {
  constexpr int kRounds = 200;
  const double before = cpu_seconds();
  for (int i = 0; i < kRounds; ++i) {
    pairs();
  }
  return cpu_seconds() - before;
}

// The same work by one thread, and by two at once, each on a stream of its own. Threads that get into each
// other's way take longer by their own clocks; those count, since others may take the machine's cores away.
// (Sleeping for a lock would not show; streams have no lock in common there.) What the wall clock says is
// reported beside it, for machines that do nothing else.
void two_threads(benchmark::State& state, std::uint64_t bytes) {
  IdlePool rig(10);
  Pairs first(rig.pool, 0, bytes, Order::kStack);
  Pairs second(rig.pool, 1, bytes, Order::kStack);
  Figures alone;
  Figures together;
  Figures alone_by_wall;
  Figures together_by_wall;
  for (auto each : state) {
    static_cast<void>(each);
    const double begin = wall_seconds();
    alone.push_back(1 / cpu_seconds_of(first));
    const double between = wall_seconds();
    double of_second = 0;
    std::thread other([&] { of_second = cpu_seconds_of(second); });
    const double of_first = cpu_seconds_of(first);
    other.join();
    alone_by_wall.push_back(1 / (between - begin));
    together_by_wall.push_back(2 / (wall_seconds() - between));
    together.push_back(1 / of_first + 1 / of_second);
    state.SetIterationTime(1 / alone.back() + of_first + of_second);
  }
  report_ratio(state, "two threads/one", together, alone);
  report_ratio(state, "by the wall clock", together_by_wall, alone_by_wall);
}
BENCHMARK_CAPTURE(two_threads, small, 4096)->Name("stream_pool/two_threads")->UseManualTime();

// --- streams that come and go, and many that stay ----------------------------------------------------------

// Streams of a program that creates and destroys them. A handle is given again, as CUDA gives it, and means
// another stream then. The device is done with everything at once, or never.
class ChangingStreams final : public NullBackend {
 public:
  ChangingStreams(std::size_t handles, bool is_done, bool of_thread)
      : NullBackend(std::uint64_t{256} << 30), ids_(handles), is_done_(is_done), of_thread_(of_thread) {}

  // `handle` means a stream from now on that has not been before.
  StreamHandle create(std::size_t handle) {
    ids_[handle] = ++created_;
    return stream_handle(static_cast<StreamId>(handle));
  }

  std::uint64_t stream_id(StreamHandle stream) override {
    return ids_[reinterpret_cast<std::uintptr_t>(stream) - 1];
  }
  bool is_of_thread(StreamHandle) const override { return of_thread_; }
  bool reached(EventHandle) override { return is_done_; }

 private:
  std::vector<std::uint64_t> ids_;
  std::uint64_t created_ = 0;
  const bool is_done_;
  const bool of_thread_;
};

struct Requests {
  std::uint64_t bytes;
  bool is_told = true;     // of the end of each stream
  bool is_done = true;     // what streams are given
  bool of_thread = false;  // each is another thread's default stream, whose end nobody tells
  int zombies = 0;         // streams that have gone without notice, each with a block in use
};

// A program that creates a stream for each request, and allocates and frees on it. Eight requests overlap.
class RequestLoop {
 public:
  static constexpr int kRequests = 64;  // a run

  explicit RequestLoop(const Requests& requests)
      : requests_(requests),
        backend_(kAtOnce + static_cast<std::size_t>(requests.zombies), requests.is_done, requests.of_thread) {
    for (int i = 0; i < requests.zombies; ++i) {
      pool_.allocate(requests.bytes, backend_.create(kAtOnce + static_cast<std::size_t>(i)));
    }
  }

  void until(std::uint64_t request) {
    while (next_ < request) {
      this->request();
    }
  }
  void operator()() { until(next_ + kRequests); }

 private:
  static constexpr std::size_t kAtOnce = 8;

  void request() {
    const std::size_t slot = next_++ % kAtOnce;
    if (handles_[slot] != nullptr) {
      pool_.free(blocks_[slot]);
      if (requests_.is_told && !requests_.of_thread) {
        pool_.forget(handles_[slot]);
      }
    }
    handles_[slot] = backend_.create(slot);
    const std::uint64_t passing = pool_.allocate(2 * requests_.bytes, handles_[slot])->begin;
    blocks_[slot] = pool_.allocate(requests_.bytes, handles_[slot])->begin;
    pool_.free(passing);
  }

  const Requests requests_;
  ChangingStreams backend_;
  StreamPool pool_{backend_, {}};
  std::array<StreamHandle, kAtOnce> handles_{};
  std::array<std::uint64_t, kAtOnce> blocks_{};
  std::uint64_t next_ = 0;
};

constexpr std::uint64_t kLateRequest = 100000;

// Request 100 beside request 100,000.
void by_requests(benchmark::State& state, const Requests& requests) {
  std::unique_ptr<RequestLoop> early;
  RequestLoop late(requests);
  late.until(kLateRequest);
  const auto prepare = [&] {
    early = std::make_unique<RequestLoop>(requests);
    early->until(100);
  };
  const std::vector<Figures> figures =
      side_by_side(state, {{"100 ns", [&] { (*early)(); }, prepare}, {"100k ns", [&] { late(); }}},
                   [](double seconds) { return seconds * 1e9 / RequestLoop::kRequests; });
  report_ratio(state, "100k/100", figures[1], figures[0]);
}
BENCHMARK_CAPTURE(by_requests, small, {.bytes = 4096})->Name("stream_pool/requests/small")->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20})
    ->Name("stream_pool/requests/large")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, small, {.bytes = 4096, .is_told = false})
    ->Name("stream_pool/requests/small/untold")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .is_told = false})
    ->Name("stream_pool/requests/large/untold")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .is_done = false})
    ->Name("stream_pool/requests/large/ahead")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, small, {.bytes = 4096, .of_thread = true})
    ->Name("stream_pool/requests/small/threads")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .of_thread = true})
    ->Name("stream_pool/requests/large/threads")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .is_told = false, .zombies = 1000})
    ->Name("stream_pool/requests/large/zombies")
    ->UseManualTime();

// Blocks come and go at random on so many streams, each freed on its own.
class ManyStreams {
 public:
  static constexpr int kCalls = 20000;  // a run

  ManyStreams(StreamId streams, std::uint64_t most_bytes, bool is_done)
      : streams_(streams), most_bytes_(most_bytes), backend_(streams, is_done, false) {
    for (StreamId stream = 0; stream < streams; ++stream) {
      backend_.create(stream);
    }
  }

  void operator()() {
    for (int i = 0; i < kCalls; ++i) {
      if (blocks_.size() < kBlocks && random_.below(2) == 0) {
        const std::uint64_t bytes = 1 + random_.below(most_bytes_);
        const StreamHandle stream = stream_handle(static_cast<StreamId>(random_.below(streams_)));
        blocks_.push_back(pool_.allocate(bytes, stream)->begin);
      } else if (!blocks_.empty()) {
        std::swap(blocks_[random_.below(blocks_.size())], blocks_.back());
        pool_.free(blocks_.back());
        blocks_.pop_back();
      }
    }
  }

 private:
  static constexpr std::size_t kBlocks = 1024;

  const StreamId streams_;
  const std::uint64_t most_bytes_;
  SplitMix64 random_{1};
  ChangingStreams backend_;
  StreamPool pool_{backend_, {}};
  std::vector<std::uint64_t> blocks_;
};

void by_streams(benchmark::State& state, std::uint64_t most_bytes, bool is_done) {
  std::vector<std::unique_ptr<ManyStreams>> programs;
  std::vector<Contender> contenders;
  for (const StreamId streams : {8U, 128U, 512U}) {
    programs.push_back(std::make_unique<ManyStreams>(streams, most_bytes, is_done));
    contenders.push_back({std::to_string(streams) + " ns", [&program = *programs.back()] { program(); }});
    contenders.back().run();  // memory is there
  }
  const std::vector<Figures> figures =
      side_by_side(state, contenders, [](double seconds) { return seconds * 1e9 / ManyStreams::kCalls; });
  report_ratio(state, "512/8", figures[2], figures[0]);
}
BENCHMARK_CAPTURE(by_streams, small, 64 << 10, true)->Name("stream_pool/streams/small")->UseManualTime();
BENCHMARK_CAPTURE(by_streams, large, 8 << 20, true)->Name("stream_pool/streams/large")->UseManualTime();
BENCHMARK_CAPTURE(by_streams, large, 8 << 20, false)
    ->Name("stream_pool/streams/large/ahead")
    ->UseManualTime();

}  // namespace
}  // namespace vdnn::bench
