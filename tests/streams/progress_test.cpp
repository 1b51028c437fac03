#include "streams/cpu/progress.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "src/base/random.h"

namespace vdnn::progress_test {
namespace {

constexpr std::uint64_t kCounts = 2000;
constexpr std::uint64_t kWaiters = 5;

TEST(Progress, WhatIsCompletedNeedsNoWait) {
  Progress progress;
  progress.wait_for(0);
  EXPECT_FALSE(progress.reached(1));
  progress.reach(2);
  EXPECT_TRUE(progress.reached(2));
  EXPECT_FALSE(progress.reached(3));
  progress.wait_for(1);
  progress.wait_for(2);
}

// Each thread waits for its own counts, small and large, so that other threads still wait after a wake-up for
// the smallest count. A lost wake-up hangs this test; an early one fails an expectation.
TEST(Progress, EveryWaiterHearsOfItsOwnCount) {
  Progress progress;
  const auto wait_and_look = [&progress](std::uint64_t seed) {
    SplitMix64 random(seed);
    for (std::uint64_t count = 0; count < kCounts;) {
      count = std::min(kCounts, count + 1 + random.below(1 + seed * seed));
      progress.wait_for(count);
      EXPECT_TRUE(progress.reached(count)) << "seed " << seed << ", count " << count;
    }
  };
  std::vector<std::thread> waiters;
  for (std::uint64_t seed = 0; seed < kWaiters; ++seed) {
    waiters.emplace_back(wait_and_look, seed);
  }
  for (std::uint64_t count = 1; count <= kCounts; ++count) {
    progress.reach(count);
    std::this_thread::yield();
  }
  for (std::thread& waiter : waiters) {
    waiter.join();
  }
}

// The number of times that the calling thread has gone to sleep.
long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// Regression: every completed op woke all threads that waited for later ops.
TEST(Progress, AWaiterSleepsThroughWhatItDoesNotWaitFor) {
  Progress progress;
  std::atomic<bool> started = false;
  long slept = 0;
  std::thread waiter([&] {
    started = true;
    const long before = sleeps();
    progress.wait_for(kCounts);
    slept = sleeps() - before;
  });
  while (!started) {
    std::this_thread::yield();
  }
  for (std::uint64_t count = 1; count <= kCounts; ++count) {
    progress.reach(count);
    std::this_thread::yield();
  }
  waiter.join();
  constexpr long kMost = 10;  // one sleep, and some for a contended mutex
  EXPECT_LE(slept, kMost);
}

}  // namespace
}  // namespace vdnn::progress_test
