// Measures the cost of allocate and free of the stream pool on a backend that does nothing: with and without
// the cache of a stream, in stack, queue and random order, and with few and many idle blocks, which stay
// allocated. Also compares two threads on two streams with one thread.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/null_backend.h"
#include "bench/side_by_side.h"
#include "bench/stream_programs.h"
#include "src/base/random.h"
#include "vdnn/stream_pool.h"

namespace vdnn::bench {
namespace {

constexpr int kBatch = 16;     // blocks allocated before the first is freed
constexpr int kBatches = 500;  // per run
constexpr int kPairs = kBatch * kBatches;

enum class Order { kStack, kQueue, kRandom };

// Allocates and frees `kBatch` blocks at a time.
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

// A pool with a given number of idle blocks of one stream: they are allocated and never freed.
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

// Compares ten idle blocks with a million. In the names of figures, "10" and "1M" are the numbers of idle
// blocks; the figures are nanoseconds per call.
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

// The same work by one thread, and by two threads at once, each on a stream of its own. Threads that hinder
// each other use more CPU time. The benchmark compares CPU time, since other programs may use the machine's
// cores. (CPU time does not include sleeping for a lock, but these two streams share no lock.) It also
// reports the wall clock, for otherwise idle machines.
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

// --- short-lived streams, and many long-lived streams ------------------------------------------------------

constexpr std::uint64_t kLateRequest = 100000;
constexpr int kRequests = 64;  // per run
constexpr int kCalls = 20000;  // per run

// Compares the time of request 100 with that of request 100,000. In the names of figures, "100" and "100k"
// are the numbers of the requests; the figures are nanoseconds per request.
void by_requests(benchmark::State& state, const Requests& requests) {
  std::unique_ptr<RequestLoop> early;
  RequestLoop late(requests);
  late.run(kLateRequest);
  const auto prepare = [&] {
    early = std::make_unique<RequestLoop>(requests);
    early->run(100);
  };
  const std::vector<Figures> figures = side_by_side(
      state, {{"100 ns", [&] { early->run(kRequests); }, prepare}, {"100k ns", [&] { late.run(kRequests); }}},
      [](double seconds) { return seconds * 1e9 / kRequests; });
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
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .done = Done::kNever})
    ->Name("stream_pool/requests/large/ahead")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, small, {.bytes = 4096, .is_told = false, .of_thread = true})
    ->Name("stream_pool/requests/small/threads")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .is_told = false, .of_thread = true})
    ->Name("stream_pool/requests/large/threads")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_requests, large, {.bytes = 4 << 20, .is_told = false, .left_behind = 1000})
    ->Name("stream_pool/requests/large/left_behind")
    ->UseManualTime();

// Compares 8, 128 and 512 streams. The number in a figure's name is the number of streams; the figures are
// nanoseconds per call.
void by_streams(benchmark::State& state, std::uint64_t most_bytes, Done done) {
  std::vector<std::unique_ptr<ManyStreams>> programs;
  std::vector<Contender> contenders;
  for (const StreamId streams : {8U, 128U, 512U}) {
    programs.push_back(std::make_unique<ManyStreams>(streams, most_bytes, done));
    contenders.push_back(
        {std::to_string(streams) + " ns", [&program = *programs.back()] { program.run(kCalls); }});
    contenders.back().run();  // allocates the memory
  }
  const std::vector<Figures> figures =
      side_by_side(state, contenders, [](double seconds) { return seconds * 1e9 / kCalls; });
  report_ratio(state, "512/8", figures[2], figures[0]);
}
BENCHMARK_CAPTURE(by_streams, small, 64 << 10, Done::kAtOnce)
    ->Name("stream_pool/streams/small")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_streams, large, 8 << 20, Done::kAtOnce)
    ->Name("stream_pool/streams/large")
    ->UseManualTime();
BENCHMARK_CAPTURE(by_streams, large, 8 << 20, Done::kNever)
    ->Name("stream_pool/streams/large/ahead")
    ->UseManualTime();

}  // namespace
}  // namespace vdnn::bench
