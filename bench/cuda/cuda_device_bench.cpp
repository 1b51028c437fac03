// Measures the bandwidth of the `cuda` driver's copy streams relative to CUDA's own asynchronous copies, one
// way and both ways at once. Several copies queue, as feature maps do in a run, then the host waits.

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "vdnn/cuda_device.h"
#include "vdnn/error.h"

namespace vdnn::bench {
namespace {

constexpr std::int64_t kSmallestCopy = 64 << 10;
constexpr std::int64_t kLargestCopy = 256 << 20;
constexpr std::uint64_t kQueue = 4;

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw DeviceError(std::string(call) + ": " + cudaGetErrorName(status));
  }
}

// A block of device memory and one of page-locked memory.
struct Blocks {
  AddressRange on_device;
  AddressRange on_host;
};

// The driver's copies on one of its streams.
class DriverCopies {
 public:
  DriverCopies(Device& device, CopyDirection direction, std::uint64_t bytes)
      : device_(device),
        direction_(direction),
        bytes_(bytes),
        stream_(device.create_stream("copies")),
        blocks_{device.reserve(bytes), device.allocate_pinned(bytes)} {
    device_.commit(blocks_.on_device);
  }
  ~DriverCopies() {
    device_.synchronize_all();
    device_.decommit(blocks_.on_device);
    device_.unreserve(blocks_.on_device);
    device_.free_pinned(blocks_.on_host);
  }
  DriverCopies(const DriverCopies&) = delete;
  DriverCopies& operator=(const DriverCopies&) = delete;

  void submit() {
    const bool to_host = direction_ == CopyDirection::kDeviceToHost;
    const Access device{.range = {.begin = blocks_.on_device.begin, .bytes = bytes_}};
    const Access host{.range = {.begin = blocks_.on_host.begin, .bytes = bytes_}};
    for (std::uint64_t i = 0; i < kQueue; ++i) {
      device_.copy(stream_, {.name = "copy",
                             .direction = direction_,
                             .destination = to_host ? host : device,
                             .source = to_host ? device : host});
    }
  }
  void synchronize() { device_.synchronize(device_.frontier(stream_)); }

 private:
  Device& device_;
  CopyDirection direction_;
  std::uint64_t bytes_;
  StreamId stream_;
  Blocks blocks_;
};

// The copies of DriverCopies, made with CUDA's runtime alone.
class RawCopies {
 public:
  RawCopies(CopyDirection direction, std::uint64_t bytes) : direction_(direction), bytes_(bytes) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMalloc(&on_device_, bytes), "cudaMalloc");
    check(cudaHostAlloc(&on_host_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  }
  ~RawCopies() {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaFreeHost(on_host_));
    static_cast<void>(cudaFree(on_device_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  RawCopies(const RawCopies&) = delete;
  RawCopies& operator=(const RawCopies&) = delete;

  void submit() {
    const bool to_host = direction_ == CopyDirection::kDeviceToHost;
    for (std::uint64_t i = 0; i < kQueue; ++i) {
      check(cudaMemcpyAsync(to_host ? on_host_ : on_device_, to_host ? on_device_ : on_host_, bytes_,
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream_),
            "cudaMemcpyAsync");
    }
  }
  void synchronize() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  CopyDirection direction_;
  std::uint64_t bytes_;
  cudaStream_t stream_ = nullptr;
  void* on_device_ = nullptr;
  void* on_host_ = nullptr;
};

template <class Copies>
void run_all(std::vector<std::unique_ptr<Copies>>& copies) {
  for (const auto& each : copies) {
    each->submit();
  }
  for (const auto& each : copies) {
    each->synchronize();
  }
}

void copy_bandwidth(benchmark::State& state, const std::vector<CopyDirection>& directions) {
  try {
    const auto bytes = static_cast<std::uint64_t>(state.range(0));
    const auto device = make_cuda_device({});
    std::vector<std::unique_ptr<RawCopies>> raw;
    std::vector<std::unique_ptr<DriverCopies>> driver;
    for (const CopyDirection direction : directions) {
      raw.push_back(std::make_unique<RawCopies>(direction, bytes));
      driver.push_back(std::make_unique<DriverCopies>(*device, direction, bytes));
    }
    const double total = static_cast<double>(bytes * kQueue * directions.size());
    const std::vector<Figures> figures =
        side_by_side(state, {{"raw GB/s", [&] { run_all(raw); }}, {"stream GB/s", [&] { run_all(driver); }}},
                     [total](double seconds) { return total / seconds * 1e-9; });
    report_ratio(state, "stream/raw", figures[1], figures[0]);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes")
      ->RangeMultiplier(4)
      ->Range(kSmallestCopy, kLargestCopy)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(copy_bandwidth, offload, {CopyDirection::kDeviceToHost})->Apply(sizes);
BENCHMARK_CAPTURE(copy_bandwidth, prefetch, {CopyDirection::kHostToDevice})->Apply(sizes);
BENCHMARK_CAPTURE(copy_bandwidth, both, {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice})
    ->Apply(sizes);

}  // namespace
}  // namespace vdnn::bench
