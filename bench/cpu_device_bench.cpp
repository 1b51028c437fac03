// Measures the bandwidth of `cpu`'s copy streams relative to a plain memcpy, how much of a copy's time is
// hidden by computation, and the cost of a submission.
//
// On `cpu`, page-locked memory is ordinary memory whose pages are touched at allocation, so copies never
// cause page faults. A pageable block, like fresh memory of malloc, has no pages yet. The offload, the first
// copy into the block, pays for the page faults. A prefetch finds the pages present, so prefetches are
// measured with page-locked memory only.

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "vdnn/cpu_device.h"
#include "vdnn/size.h"

namespace vdnn::bench {
namespace {

enum class HostMemory : std::uint8_t { kPageLocked, kPageable };

constexpr std::int64_t kSmallestCopy = 64 << 10;
constexpr std::int64_t kLargestCopy = 256 << 20;
constexpr std::int64_t kQueue = 8;
constexpr std::uint64_t kOverlappedBytes = 64 << 20;

// A device with one block of its memory and one of page-locked memory. The pages of both blocks are touched.
class Blocks {
 public:
  explicit Blocks(std::uint64_t bytes)
      : bytes_(round_up(bytes, device().properties().granule_bytes)),
        reservation_(device().reserve(bytes_)),
        host_(device().allocate_pinned(bytes_)) {
    device().commit(reservation_);
    std::memset(pointer_to<void>(reservation_.begin), 1, bytes_);
  }
  ~Blocks() {
    device().synchronize_all();
    device().decommit(reservation_);
    device().unreserve(reservation_);
    device().free_pinned(host_);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  Device& device() { return *device_; }
  // Copies of the whole block in pieces of `bytes`.
  std::vector<Copy> copies(CopyDirection direction, std::uint64_t bytes) const {
    std::vector<Copy> result;
    for (std::uint64_t begin = 0; begin < bytes_; begin += bytes) {
      const Access device{.range = {.begin = reservation_.begin + begin, .bytes = bytes}};
      const Access host{.range = {.begin = host_.begin + begin, .bytes = bytes}};
      const bool to_host = direction == CopyDirection::kDeviceToHost;
      result.push_back({.name = "copy",
                        .direction = direction,
                        .destination = to_host ? host : device,
                        .source = to_host ? device : host});
    }
    return result;
  }
  // Returns the host block's pages to the system.
  void forget_host_pages() { madvise(pointer_to<void>(host_.begin), bytes_, MADV_DONTNEED); }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device({});
  std::uint64_t bytes_;
  AddressRange reservation_;
  AddressRange host_;
};

void copy_plainly(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    std::memcpy(pointer_to<void>(copy.destination.range.begin), pointer_to<void>(copy.source.range.begin),
                copy.source.range.bytes);
  }
}

Frontier submit(Device& device, StreamId stream, const std::vector<Copy>& copies) {
  Frontier done;
  for (const Copy& copy : copies) {
    done.join(device.copy(stream, copy));
  }
  return done;
}

// Submits several copies together, as feature maps queue in a run, then waits. With one copy, the result
// includes the full latency of starting the copy and of notifying the host of its end.
void copy_bandwidth(benchmark::State& state, CopyDirection direction, HostMemory memory) {
  const auto bytes = static_cast<std::uint64_t>(state.range(0));
  const auto total_bytes = bytes * static_cast<std::uint64_t>(state.range(1));
  Blocks blocks(total_bytes);
  Device& device = blocks.device();
  const StreamId stream = device.create_stream("copies");
  const std::vector<Copy> copies = blocks.copies(direction, bytes);
  const std::function<void()> prepare = [&] {
    if (memory == HostMemory::kPageable) {
      blocks.forget_host_pages();
    }
  };
  const std::vector<Figures> figures =
      side_by_side(state,
                   {{"memcpy GB/s", [&] { copy_plainly(copies); }, prepare},
                    {"stream GB/s", [&] { device.synchronize(submit(device, stream, copies)); }, prepare}},
                   [&](double seconds) { return static_cast<double>(total_bytes) / seconds * 1e-9; });
  report_ratio(state, "stream/memcpy", figures[1], figures[0]);
}

// Arithmetic on registers for about `seconds`: like convolutions, bound by computing, not by memory.
class Arithmetic {
 public:
  explicit Arithmetic(double seconds) {
    constexpr std::uint64_t kTrial = 1 << 22;
    run(kTrial);
    const auto begin = std::chrono::steady_clock::now();
    run(kTrial);
    const std::chrono::duration<double> trial = std::chrono::steady_clock::now() - begin;
    rounds_ = static_cast<std::uint64_t>(kTrial * seconds / trial.count());
  }
  void operator()() const { run(rounds_); }

 private:
  static void run(std::uint64_t rounds) {
    double sum = 1;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      sum = std::fma(sum, 0.999, 0.001);
      benchmark::DoNotOptimize(sum);
    }
  }
  std::uint64_t rounds_ = 0;
};

// Computation and a copy of about the same length, alone and together. `together/longer` is 1 if they overlap
// entirely, 2 if not at all. The computation stays in registers, so it does not compete with the copy for
// memory bandwidth (session_bench measures whole steps).
void overlap(benchmark::State& state, CopyDirection direction) {
  Blocks blocks(kOverlappedBytes);
  Device& device = blocks.device();
  const StreamId compute = device.create_stream("compute");
  const StreamId copies = device.create_stream("copies");
  const std::vector<Copy> whole = blocks.copies(direction, kOverlappedBytes);
  const auto copy_once = [&] { return submit(device, copies, whole); };
  device.synchronize(copy_once());
  const double begin = device.now_seconds();
  device.synchronize(copy_once());
  const Arithmetic arithmetic(device.now_seconds() - begin);
  const auto compute_once = [&] {
    return Frontier(device.submit(compute, {.name = "arithmetic", .run = [&](void*) { arithmetic(); }}));
  };
  std::vector<Figures> figures = side_by_side(state,
                                              {{"compute ms", [&] { device.synchronize(compute_once()); }},
                                               {"copy ms", [&] { device.synchronize(copy_once()); }},
                                               {"together ms",
                                                [&] {
                                                  Frontier both = compute_once();
                                                  both.join(copy_once());
                                                  device.synchronize(both);
                                                }}},
                                              [](double seconds) { return seconds * 1e3; });
  Figures longer(figures[0].size());
  std::ranges::transform(figures[0], figures[1], longer.begin(),
                         [](double compute_ms, double copy_ms) { return std::max(compute_ms, copy_ms); });
  report_ratio(state, "together/longer", figures[2], longer);
}

// A stream that runs nothing between hold() and let_go(), so that empty pieces of work queue there.
class HeldStream {
 public:
  static constexpr int kPieces = 1000;

  void hold() {
    gate_ = std::promise<void>();
    device_->submit(stream_, {.name = "gate", .run = [this](void*) { gate_.get_future().wait(); }});
  }
  void submit_pieces() {
    for (int i = 0; i < kPieces; ++i) {
      device_->submit(stream_, {.name = "nothing", .run = [](void*) {}});
    }
  }
  void let_go() { gate_.set_value(); }
  void synchronize() { device_->synchronize_all(); }

 private:
  std::promise<void> gate_;
  std::unique_ptr<Device> device_ = make_cpu_device({});
  const StreamId stream_ = device_->create_stream("compute");
};

// The cost of a piece of work for the submitting thread, and for the stream's thread while the host waits for
// the last piece.
void piece_of_work(benchmark::State& state) {
  HeldStream submitting;
  HeldStream executing;
  submitting.hold();
  const Contender submission{"submission ns", [&] { submitting.submit_pieces(); },
                             [&] {
                               submitting.let_go();
                               submitting.synchronize();
                               submitting.hold();
                             }};
  const Contender execution{"execution ns",
                            [&] {
                              executing.let_go();
                              executing.synchronize();
                            },
                            [&] {
                              executing.hold();
                              executing.submit_pieces();
                            }};
  side_by_side(state, {submission, execution},
               [](double seconds) { return seconds * 1e9 / HeldStream::kPieces; });
  submitting.let_go();
}
BENCHMARK(piece_of_work)->UseManualTime();

// Sizes of copies and lengths of queues. No queue holds more bytes than the largest copy.
void sizes_and_queues(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t bytes = kSmallestCopy; bytes <= kLargestCopy; bytes *= 4) {
    benchmark->Args({bytes, 1});
    if (bytes * kQueue <= kLargestCopy) {
      benchmark->Args({bytes, kQueue});
    }
  }
}

void register_bandwidth(const char* name, CopyDirection direction, HostMemory memory) {
  benchmark::RegisterBenchmark(name, copy_bandwidth, direction, memory)
      ->ArgNames({"bytes", "queued"})
      ->Apply(sizes_and_queues)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void register_overlap(const char* name, CopyDirection direction) {
  benchmark::RegisterBenchmark(name, overlap, direction)->UseManualTime()->Unit(benchmark::kMillisecond);
}

const bool kRegistered = [] {
  register_bandwidth("offload/page-locked", CopyDirection::kDeviceToHost, HostMemory::kPageLocked);
  register_bandwidth("offload/pageable", CopyDirection::kDeviceToHost, HostMemory::kPageable);
  register_overlap("offload/overlap", CopyDirection::kDeviceToHost);
  register_bandwidth("prefetch/page-locked", CopyDirection::kHostToDevice, HostMemory::kPageLocked);
  register_overlap("prefetch/overlap", CopyDirection::kHostToDevice);
  return true;
}();

}  // namespace
}  // namespace vdnn::bench
