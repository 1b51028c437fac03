// Several threads, each with its own stream, share a pool. Run also under the thread sanitizer.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/fake_device.h"
#include "vdnn/cpu_device.h"
#include "vdnn/device_pool.h"
#include "vdnn/pinned_pool.h"

namespace vdnn::pool_threads_test {
namespace {

constexpr StreamId kThreads = 4;
constexpr int kSteps = 2000;

void add_streams(Device& device) {
  for (StreamId stream = 0; stream < kThreads; ++stream) {
    device.create_stream("stream " + std::to_string(stream));
  }
}

void run_threads(const std::function<void(StreamId)>& body) {
  std::vector<std::thread> threads;
  for (StreamId thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(body, thread);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Records which thread holds each unit of the pool's range, to find overlapping blocks as they are handed
// out.
class Claims {
 public:
  Claims(std::uint64_t begin, std::uint64_t bytes, std::uint64_t unit)
      : begin_(begin), unit_(unit), holders_(bytes / unit) {}

  void take(AddressRange block, int holder) { exchange(block, 0, holder); }
  void give_back(AddressRange block, int holder) { exchange(block, holder, 0); }
  int conflicts() const { return conflicts_; }

 private:
  void exchange(AddressRange block, int from, int to) {
    for (std::uint64_t at = block.begin; at < block.end(); at += unit_) {
      if (holders_[(at - begin_) / unit_].exchange(to) != from) {
        ++conflicts_;
      }
    }
  }

  std::uint64_t begin_;
  std::uint64_t unit_;
  std::vector<std::atomic<int>> holders_;
  std::atomic<int> conflicts_ = 0;
};

TEST(PoolThreads, BlocksOfADevicePoolNeverOverlap) {
  FakeDevice device;
  add_streams(device);
  DevicePool pool(device, {});
  const AddressRange first = pool.allocate(1, 0).value();  // at the beginning of the range
  pool.free(first, {});
  Claims claims(first.begin, device.properties().budget_bytes, device.properties().alignment_bytes);
  run_threads([&](StreamId stream) {
    const int holder = static_cast<int>(stream) + 1;
    std::mt19937_64 random(stream);
    std::vector<AddressRange> live;
    for (int step = 0; step < kSteps; ++step) {
      if (live.empty() || random() % 100 < 55) {
        if (const auto block = pool.allocate(1 + random() % 4000, stream)) {
          claims.take(*block, holder);
          live.push_back(*block);
          device.submit(stream, {});
          continue;
        }
      }
      if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        claims.give_back(live.back(), holder);
        pool.free(live.back(), device.frontier(stream));
        live.pop_back();
      }
    }
    for (const AddressRange& block : live) {
      claims.give_back(block, holder);
      pool.free(block, device.frontier(stream));
    }
  });
  EXPECT_EQ(claims.conflicts(), 0);
  const DevicePoolStatistics statistics = pool.statistics();
  EXPECT_EQ(statistics.blocks_in_use, 0U);
  EXPECT_EQ(statistics.in_use_bytes, 0U);
  EXPECT_EQ(statistics.largest_free_block_bytes, statistics.committed_bytes);
  EXPECT_EQ(statistics.committed_bytes, device.counters().committed_bytes);
  EXPECT_EQ(statistics.allocations,
            statistics.reused_at_once + statistics.reused_after_wait + statistics.growths);
}

// Streams of this device are real threads. Each stream fills its block with its own number and later checks
// it. Reuse without a wait shows as a data race or as a foreign number.
TEST(PoolThreads, WorkFindsItsBlocksUntouched) {
  const auto device = make_cpu_device({.budget_bytes = 16 << 20});
  add_streams(*device);
  std::atomic<int> damaged = 0;
  {
    DevicePool pool(*device, {.budget_bytes = 1 << 20});
    run_threads([&](StreamId stream) {
      std::mt19937_64 random(stream);
      for (std::uint64_t step = 0; step < kSteps / 10; ++step) {
        const auto block = pool.allocate(8 * (1 + random() % 2000), stream);
        if (!block) {
          continue;
        }
        const std::uint64_t mark = step * kThreads + stream;
        std::uint64_t* const words = pointer_to<std::uint64_t>(block->begin);
        const std::uint64_t count = block->bytes / sizeof(std::uint64_t);
        const Access access{.range = *block, .version = 0};
        device->submit(stream,
                       {.name = "fill", .reads = {}, .writes = {&access, 1}, .cost = {}, .run = [=](void*) {
                          std::fill_n(words, count, mark);
                        }});
        device->submit(
            stream,
            {.name = "look", .reads = {&access, 1}, .writes = {}, .cost = {}, .run = [=, &damaged](void*) {
               damaged += std::count(words, words + count, mark) != static_cast<std::ptrdiff_t>(count);
             }});
        pool.free(*block, device->frontier(stream));
      }
    });
    device->synchronize_all();
  }
  EXPECT_EQ(damaged, 0);
}

// Regression: the pool refused while another thread was evicting a block. The bytes of that block are neither
// cached nor in use, but are about to be free, so the pool must wait for them.
TEST(PoolThreads, WhatAnotherThreadIsEvictingCountsAsRoom) {
  FakeDevice device;
  add_streams(device);
  PinnedPool pool(device, 1000);
  pool.free(pool.allocate(1000, 0).value(), Frontier(device.submit(0, {})));
  std::optional<AddressRange> second;
  std::atomic<bool> answered = false;
  std::thread other;
  device.on_synchronize = [&](const Frontier&) {
    other = std::thread([&] {
      second = pool.allocate(600, 1);
      answered = true;
    });
    // Gives a wrong refusal time to occur; the right answer is possible only after this loop.
    for (int i = 0; i < 10000 && !answered; ++i) {
      std::this_thread::yield();
    }
  };
  const std::optional<AddressRange> first = pool.allocate(400, 2);
  other.join();
  device.on_synchronize = nullptr;
  EXPECT_TRUE(first.has_value());
  EXPECT_TRUE(second.has_value());
}

// Such demands are granted however evictions of several threads interleave.
TEST(PoolThreads, PageLockedDemandsThatFitTogetherAreNeverRefused) {
  FakeDevice device;
  add_streams(device);
  constexpr std::uint64_t kShare = 1000;
  PinnedPool pool(device, kThreads * kShare);
  std::atomic<int> refused = 0;
  run_threads([&](StreamId stream) {
    std::mt19937_64 random(stream);
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t bytes = kShare / 2 + random() % (kShare / 2) + 1;
      const auto block = random() % 4 == 0 ? pool.allocate_for_host(bytes) : pool.allocate(bytes, stream);
      if (!block) {
        ++refused;
        continue;
      }
      device.submit(stream, {});
      pool.free(*block, device.frontier(stream));
      if (random() % 100 == 0) {
        pool.trim();
      }
    }
  });
  EXPECT_EQ(refused, 0);
  const PinnedPoolStatistics statistics = pool.statistics();
  EXPECT_EQ(statistics.in_use_bytes, 0U);
  EXPECT_LE(statistics.peak_bytes, kThreads * kShare);
  EXPECT_EQ(statistics.cached_bytes, device.counters().pinned_bytes);
}

}  // namespace
}  // namespace vdnn::pool_threads_test
