// What the pools cost the thread that submits: pairs of allocate and free on `sim`, where the device itself
// costs next to nothing.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "vdnn/device_pool.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/sim_device.h"

namespace vdnn {
namespace {

constexpr StreamId kStreams = 2;

std::unique_ptr<SimDevice> make_device() {
  SimDeviceOptions options;
  options.profile = sim_profile("h200");
  auto device = make_sim_device(options);
  for (StreamId stream = 0; stream < kStreams; ++stream) {
    device->create_stream("stream");
    device->submit(stream, {});
  }
  return device;
}

// One block of one size, by one stream, again and again.
void steady_reuse(benchmark::State& state) {
  const auto device = make_device();
  DevicePool pool(*device, {});
  const Frontier used = device->frontier(0);
  while (state.KeepRunning()) {
    const AddressRange block = pool.allocate(1 << 20, 0).value();
    benchmark::DoNotOptimize(block);
    pool.free(block, used);
  }
}
BENCHMARK(steady_reuse);

// A thousand live blocks; each iteration frees one at random and takes one of another size.
void random_sizes(benchmark::State& state) {
  const auto device = make_device();
  DevicePool pool(*device, {});
  const Frontier used = device->frontier(0);
  std::mt19937_64 random(1);
  const auto take = [&] {
    return pool.allocate(1 + random() % (std::uint64_t{1} << (8 + random() % 16)), 0).value();
  };
  std::vector<AddressRange> live(1000);
  for (AddressRange& block : live) {
    block = take();
  }
  while (state.KeepRunning()) {
    AddressRange& block = live[random() % live.size()];
    pool.free(block, used);
    block = take();
  }
  for (const AddressRange& block : live) {
    pool.free(block, used);
  }
}
BENCHMARK(random_sizes);

// The block passes between two streams, so that each allocation makes its stream wait for the other.
void across_streams(benchmark::State& state) {
  const auto device = make_device();
  DevicePool pool(*device, {});
  StreamId stream = 0;
  while (state.KeepRunning()) {
    const AddressRange block = pool.allocate(1 << 20, stream).value();
    pool.free(block, Frontier(device->submit(stream, {})));
    stream = 1 - stream;
  }
}
BENCHMARK(across_streams);

void pinned_reuse(benchmark::State& state) {
  const auto device = make_device();
  PinnedPool pool(*device);
  const Frontier used = device->frontier(0);
  while (state.KeepRunning()) {
    const AddressRange block = pool.allocate(1 << 20, 0).value();
    benchmark::DoNotOptimize(block);
    pool.free(block, used);
  }
}
BENCHMARK(pinned_reuse);

}  // namespace
}  // namespace vdnn
