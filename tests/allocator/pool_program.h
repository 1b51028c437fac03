#pragma once
// Random programs with several streams that share a device pool, for the tests of placement, peak and order.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "vdnn/device_pool.h"

namespace vdnn {

// Either allocates a block, which `stream` writes; or frees a block after `stream` has read it.
struct PoolStep {
  bool frees = false;
  std::size_t block = 0;
  std::uint64_t bytes = 0;
  StreamId stream = 0;
};

// Sizes from 1 byte to 64 KiB. Everything is freed at the end.
inline std::vector<PoolStep> random_program(std::uint64_t seed, std::size_t blocks, StreamId streams) {
  std::mt19937_64 random(seed);
  std::vector<PoolStep> steps;
  std::vector<PoolStep> live;
  for (std::size_t block = 0; block < blocks || !live.empty();) {
    const auto stream = static_cast<StreamId>(random() % streams);
    if (block < blocks && (live.empty() || random() % 100 < 55)) {
      const std::uint64_t bytes = 1 + random() % (std::uint64_t{1} << (1 + random() % 16));
      live.push_back({.frees = false, .block = block++, .bytes = bytes, .stream = stream});
      steps.push_back(live.back());
    } else {
      std::swap(live[random() % live.size()], live.back());
      steps.push_back({.frees = true, .block = live.back().block, .bytes = 0, .stream = stream});
      live.pop_back();
    }
  }
  return steps;
}

// Runs programs on streams 0, 1, ... of the pool's device. Each write has its own version.
class PoolProgramRunner {
 public:
  explicit PoolProgramRunner(DevicePool& pool) : pool_(pool), device_(pool.device()) {}

  // Returns the address of each block in order of allocation. If the pool refuses a block, frees everything
  // and returns nothing.
  std::optional<std::vector<std::uint64_t>> run(const std::vector<PoolStep>& steps) {
    std::vector<std::uint64_t> addresses;
    for (const PoolStep& step : steps) {
      if (step.frees) {
        read_and_free(step.block, step.stream);
        continue;
      }
      const std::optional<AddressRange> range = pool_.allocate(step.bytes, step.stream);
      if (!range) {
        while (!live_.empty()) {
          read_and_free(live_.begin()->first, step.stream);
        }
        return std::nullopt;
      }
      addresses.push_back(range->begin);
      const Access write{.range = *range, .version = ++version_};
      device_.submit(step.stream,
                     {.name = "write", .reads = {}, .writes = {&write, 1}, .cost = {}, .run = {}});
      live_[step.block] = {.access = write, .written = device_.frontier(step.stream)};
    }
    return addresses;
  }

  // The border of a step: orders every stream after all work so far.
  void order_streams(StreamId streams) {
    Frontier everything;
    for (StreamId stream = 0; stream < streams; ++stream) {
      everything.join(device_.frontier(stream));
    }
    for (StreamId stream = 0; stream < streams; ++stream) {
      device_.wait(stream, everything);
    }
  }

 private:
  struct Live {
    Access access;
    Frontier written;
  };

  void read_and_free(std::size_t block, StreamId stream) {
    const Live live = live_.at(block);
    live_.erase(block);
    device_.wait(stream, live.written);
    device_.submit(stream, {.name = "read", .reads = {&live.access, 1}, .writes = {}, .cost = {}, .run = {}});
    pool_.free(live.access.range, device_.frontier(stream));
  }

  DevicePool& pool_;
  Device& device_;
  std::uint64_t version_ = 0;
  std::map<std::size_t, Live> live_;
};

}  // namespace vdnn
