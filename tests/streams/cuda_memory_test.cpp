// Physical allocations of the `cuda` driver's device memory: how many there are, and when they go back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fakes/fake_cuda.h"
#include "streams/cuda/cuda_device.h"
#include "tests/extent.h"
#include "vdnn/device_pool.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostCalls = 2000;
constexpr std::uint64_t kLargestPiece = 64 * kMiB;

std::shared_ptr<FakeCuda> large_gpu() {
  return std::make_shared<FakeCuda>(FakeCudaOptions{.memory_bytes = 96 * kGiB, .logical_memory = true});
}

void expect_few_calls(const FakeCuda& fake) {
  for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease"}) {
    EXPECT_GT(fake.calls(call), 0U) << call;
    EXPECT_LE(fake.calls(call), kMostCalls) << call;
  }
}

// Before, they were 40,960 allocations of a granule each.
TEST(CudaMemory, EightyGibibytesAreFewAllocations) {
  const auto fake = large_gpu();
  {
    const auto device = make_cuda_device({.budget_bytes = 90 * kGiB, .library_bytes = 0}, fake);
    const AddressRange range = device->reserve(80 * kGiB);
    device->commit(range);
    std::printf("80 GiB: %d allocations\n", static_cast<int>(fake->calls("cuMemCreate")));
    expect_few_calls(*fake);
    EXPECT_EQ(fake->mapped_bytes(), 80 * kGiB);
    EXPECT_EQ(device->counters().peak_committed_bytes, 80 * kGiB);
    device->decommit(range);
    EXPECT_EQ(fake->mapped_bytes(), 0U);
    EXPECT_LE(fake->calls("cuMemUnmap"), kMostCalls);
    device->unreserve(range);
  }
  EXPECT_THAT(fake->misuses(), IsEmpty());
  EXPECT_THAT(fake->leaks(), IsEmpty());
}

// By a pool that grows block by block, up to the budget.
TEST(CudaMemory, APoolTakesFewAllocationsAndItsBudgetToTheByte) {
  const auto fake = large_gpu();
  {
    const auto device = make_cuda_device({.budget_bytes = 80 * kGiB, .library_bytes = 0}, fake);
    const StreamId stream = device->create_stream("compute");
    DevicePool pool(*device, {});
    std::vector<AddressRange> blocks;
    while (const auto block = pool.allocate(500 * kMiB, stream)) {
      blocks.push_back(*block);
    }
    EXPECT_EQ(pool.statistics().committed_bytes, blocks.size() * 500 * kMiB);
    EXPECT_TRUE(pool.resize(80 * kGiB));
    EXPECT_EQ(pool.statistics().peak_committed_bytes, 80 * kGiB);
    EXPECT_EQ(fake->peak_mapped_bytes(), 80 * kGiB);
    expect_few_calls(*fake);
    for (const AddressRange block : blocks) {
      pool.free(block, {});
    }
  }
  EXPECT_EQ(fake->mapped_bytes(), 0U);
  EXPECT_THAT(fake->misuses(), IsEmpty());
}

// A piece of which a part stays committed stays as a whole, is used again by the next commit, and goes with
// its last part.
TEST(CudaMemory, WhatStaysOfAPieceIsUsedAgain) {
  const auto fake = large_gpu();
  {
    const auto device = make_cuda_device({.budget_bytes = 80 * kGiB, .library_bytes = 0}, fake);
    DevicePool pool(*device, {});
    ASSERT_TRUE(pool.resize(20 * kGiB));
    ASSERT_TRUE(pool.resize(10 * kGiB + 2 * kMiB));
    EXPECT_EQ(pool.statistics().committed_bytes, 10 * kGiB + 2 * kMiB);
    EXPECT_EQ(fake->mapped_bytes(), 10 * kGiB + kLargestPiece);
    const std::uint64_t created = fake->calls("cuMemCreate");
    ASSERT_TRUE(pool.resize(10 * kGiB + kLargestPiece));
    EXPECT_EQ(fake->calls("cuMemCreate"), created);
    EXPECT_EQ(fake->mapped_bytes(), 10 * kGiB + kLargestPiece);
    ASSERT_TRUE(pool.resize(10 * kGiB + 2 * kMiB));
    ASSERT_TRUE(pool.resize(10 * kGiB));
    EXPECT_EQ(fake->mapped_bytes(), 10 * kGiB);
    ASSERT_TRUE(pool.resize(100 * kMiB));
    EXPECT_EQ(fake->mapped_bytes(), 100 * kMiB) << "where pieces are granules";
  }
  EXPECT_EQ(fake->mapped_bytes(), 0U);
  EXPECT_THAT(fake->misuses(), IsEmpty());
}

// Any sequence of commits and decommits, some of whose calls CUDA refuses: what is committed can be touched,
// what is mapped beyond it lies in pieces of which a part is committed, and in the end nothing is left.
TEST(CudaMemory, AnySequenceOfCommitsKeepsWhatIsCommitted) {
  constexpr std::uint64_t kGranule = 4096;
  constexpr std::uint64_t kGranules = 1024;  // tiles of up to 16 granules
  const std::uint64_t seeds = testing::extent({.usual = 40, .under_sanitizers = 8, .in_long_run = 1000});
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto fake = std::make_shared<FakeCuda>(
        FakeCudaOptions{.memory_bytes = 64 * kMiB, .granule_bytes = kGranule, .logical_memory = true});
    const auto device = make_cuda_device({.budget_bytes = 32 * kMiB, .library_bytes = 0}, fake);
    const AddressRange all = device->reserve(kGranules * kGranule);
    std::vector<bool> committed(kGranules);
    CudaStream stream = nullptr;
    fake->set_device(0);
    fake->stream_create(stream);
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t first = random() % kGranules;
      std::uint64_t count = 0;
      const std::uint64_t most = 1 + random() % 200;
      while (count < most && first + count < kGranules && committed[first + count] == committed[first]) {
        ++count;
      }
      const AddressRange range{.begin = all.begin + first * kGranule, .bytes = count * kGranule};
      const bool commits = !committed[first];
      const std::uint64_t failing = 1 + random() % 40;
      fake->fail_call(failing, random() % 2 == 0 ? CudaStatus::kMemoryAllocation : CudaStatus::kNotSupported);
      try {
        commits ? device->commit(range) : device->decommit(range);
        std::fill_n(committed.begin() + static_cast<std::ptrdiff_t>(first), count, commits);
      } catch (const Error&) {
        if (!commits) {
          fake->fail_call(0, CudaStatus::kSuccess);
          for (std::uint64_t i = 0; i < count; ++i) {  // those before the refused piece are gone
            try {
              device->decommit({.begin = range.begin + i * kGranule, .bytes = kGranule});
            } catch (const InvalidArgument&) {
            }
          }
          std::fill_n(committed.begin() + static_cast<std::ptrdiff_t>(first), count, false);
        }
      }
      fake->fail_call(0, CudaStatus::kSuccess);
      for (std::uint64_t i = 0; i < kGranules; ++i) {
        if (committed[i]) {
          const Access access{.range = {.begin = all.begin + i * kGranule, .bytes = kGranule}};
          FakeCuda::launch(stream, [] {}, {.name = "touch", .reads = {&access, 1}, .writes = {}});
        }
      }
      EXPECT_EQ(fake->stream_synchronize(stream), CudaStatus::kSuccess);
      const auto bytes = static_cast<std::uint64_t>(std::ranges::count(committed, true)) * kGranule;
      EXPECT_GE(fake->mapped_bytes(), bytes);
      ASSERT_THAT(fake->findings(), IsEmpty());
    }
    for (std::uint64_t i = 0; i < kGranules; ++i) {
      if (committed[i]) {
        device->decommit({.begin = all.begin + i * kGranule, .bytes = kGranule});
      }
    }
    device->unreserve(all);
    EXPECT_EQ(fake->mapped_bytes(), 0U);
    fake->stream_destroy(stream);
    EXPECT_THAT(fake->misuses(), IsEmpty());
  }
}

}  // namespace
}  // namespace vdnn
