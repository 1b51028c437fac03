#include "allocator/dropin/preload/host_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <new>

#include "tests/fakes/heap.h"

namespace vdnn::preload {
namespace {

constexpr HostBlock kBlock{.ordinal = 0, .flags = 0, .bytes = 1000};

// Addresses that no test dereferences.
std::array<int, 3> places;

// Returns the block that the cache releases; null if it kept none.
void* released(HostCache& cache, std::optional<int> ordinal = std::nullopt) {
  const std::optional<HostMemory> memory = cache.release(ordinal);
  return memory ? memory->address : nullptr;
}

TEST(HostCache, WhatIsGivenBackServesTheNextOfTheSameSizeAndFlags) {
  HostCache cache(2000);
  EXPECT_EQ(cache.take(kBlock), nullptr);
  cache.add(&places[0], kBlock);
  EXPECT_TRUE(cache.is_in_use(&places[0]));
  EXPECT_EQ(cache.take(kBlock), nullptr);
  EXPECT_TRUE(cache.give(&places[0]));
  EXPECT_FALSE(cache.is_in_use(&places[0]));
  EXPECT_EQ(cache.take({.ordinal = 0, .flags = 4, .bytes = 1000}), nullptr);
  EXPECT_EQ(cache.take({.ordinal = 0, .flags = 0, .bytes = 999}), nullptr);
  EXPECT_EQ(cache.take({.ordinal = 1, .flags = 0, .bytes = 1000}), nullptr);
  EXPECT_EQ(cache.take(kBlock), &places[0]);
  EXPECT_EQ(cache.take(kBlock), nullptr);
}

TEST(HostCache, NoMoreIsKeptThanTheLimit) {
  HostCache cache(2000);
  for (int& place : places) {
    cache.add(&place, kBlock);
  }
  EXPECT_TRUE(cache.give(&places[0]));
  EXPECT_TRUE(cache.give(&places[1]));
  EXPECT_FALSE(cache.give(&places[2]));
  EXPECT_FALSE(cache.is_in_use(&places[2]));
  EXPECT_EQ(released(cache), &places[0]);
  EXPECT_EQ(released(cache), &places[1]);
  EXPECT_EQ(released(cache), nullptr);
  cache.add(&places[2], {.ordinal = 0, .flags = 0, .bytes = 2000});
  EXPECT_TRUE(cache.give(&places[2])) << "released memory no longer counts";
}

TEST(HostCache, WhatIsGivenTwiceOrNeverTakenIsNotKept) {
  HostCache cache(2000);
  EXPECT_FALSE(cache.give(&places[0]));
  cache.add(&places[0], kBlock);
  EXPECT_TRUE(cache.give(&places[0]));
  EXPECT_FALSE(cache.give(&places[0]));
  EXPECT_EQ(cache.take(kBlock), &places[0]);
  EXPECT_EQ(cache.take(kBlock), nullptr);
}

TEST(HostCache, WhatMayBeBusyIsNotKept) {
  HostCache cache(2000);
  cache.add(&places[0], kBlock);
  EXPECT_FALSE(cache.give(&places[0], true));
  EXPECT_FALSE(cache.is_in_use(&places[0]));
  EXPECT_EQ(cache.take(kBlock), nullptr);
}

TEST(HostCache, AResetReleasesAndForgetsWhatTheGpuHad) {
  constexpr HostBlock kOther{.ordinal = 1, .flags = 0, .bytes = 1000};
  HostCache cache(2000);
  cache.add(&places[0], kBlock);
  cache.add(&places[1], kOther);
  cache.add(&places[2], kBlock);
  cache.give(&places[0]);
  cache.give(&places[1]);
  EXPECT_EQ(released(cache, 0), &places[0]);
  EXPECT_EQ(released(cache, 0), nullptr);
  cache.forget(0);
  EXPECT_FALSE(cache.is_in_use(&places[2]));
  EXPECT_EQ(cache.take(kOther), &places[1]);
}

// A block passes between the program and the cache while the heap is exhausted. Regression: the block was
// forgotten, or counted as kept although it had left the cache.
TEST(HostCache, NothingIsLostWhereTheHeapIsExhausted) {
  std::uint64_t allocations = 1;
  for (std::uint64_t fail_at = 1; fail_at <= allocations; ++fail_at) {
    HostCache cache(2000);
    void* expected = &places[0];
    bool kept = false;
    void* taken = nullptr;
    void* last = nullptr;
    {
      const HeapFailure failure(fail_at, HeapFailure::Kind::kFromThenOn);
      try {
        cache.add(&places[0], kBlock);
      } catch (const std::bad_alloc&) {
        expected = nullptr;
      }
      kept = cache.give(&places[0]);
      taken = cache.take(kBlock);
      cache.give(&places[0]);
      last = released(cache);
      allocations = failure.allocations();
    }
    EXPECT_EQ(kept, expected != nullptr) << fail_at;
    EXPECT_EQ(taken, expected) << fail_at;
    EXPECT_EQ(last, expected) << fail_at;
    cache.add(&places[1], {.ordinal = 0, .flags = 0, .bytes = 2000});
    EXPECT_TRUE(cache.give(&places[1])) << "no other block counts as kept, after a failure of " << fail_at;
  }
}

}  // namespace
}  // namespace vdnn::preload
