#include "allocator/dropin/preload/host_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace vdnn::preload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr HostBlock kBlock{.ordinal = 0, .flags = 0, .bytes = 1000};

// Addresses of nothing.
std::array<int, 3> places;

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
  EXPECT_THAT(cache.drain(), ElementsAre(&places[0], &places[1]));
  EXPECT_THAT(cache.drain(), IsEmpty());
  cache.add(&places[2], kBlock);
  EXPECT_TRUE(cache.give(&places[2])) << "what was drained counts no more";
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

TEST(HostCache, AResetForgetsWhatTheGpuHad) {
  constexpr HostBlock kOther{.ordinal = 1, .flags = 0, .bytes = 1000};
  HostCache cache(2000);
  cache.add(&places[0], kBlock);
  cache.add(&places[1], kOther);
  cache.add(&places[2], kBlock);
  cache.give(&places[0]);
  cache.give(&places[1]);
  cache.forget(0);
  EXPECT_EQ(cache.take(kBlock), nullptr);
  EXPECT_FALSE(cache.is_in_use(&places[2]));
  EXPECT_EQ(cache.take(kOther), &places[1]);
}

}  // namespace
}  // namespace vdnn::preload
