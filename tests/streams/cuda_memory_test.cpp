// Physical allocations of the `cuda` driver's device memory: their number and their release.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "streams/cuda/cuda_device.h"
#include "tests/extent.h"
#include "tests/fakes/fake_cuda.h"
#include "vdnn/device_pool.h"
#include "vdnn/error.h"

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

// Regression: 80 GiB were 40,960 allocations of one granule each.
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

// A pool grows block by block, up to the budget.
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

// A piece stays mapped as a whole while any part of it is committed. The next commit reuses it, and it is
// released with its last committed part.
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
    EXPECT_EQ(fake->mapped_bytes(), 100 * kMiB) << "here pieces are single granules";
  }
  EXPECT_EQ(fake->mapped_bytes(), 0U);
  EXPECT_THAT(fake->misuses(), IsEmpty());
}

// Commits and decommits parts of a reservation at random, while CUDA refuses some calls.
class RandomCommits {
 public:
  static constexpr std::uint64_t kGranule = 4096;
  static constexpr std::uint64_t kGranules = 1024;  // tiles of up to 16 granules

  explicit RandomCommits(std::uint64_t seed)
      : random_(seed),
        fake_(std::make_shared<FakeCuda>(
            FakeCudaOptions{.memory_bytes = 64 * kMiB, .granule_bytes = kGranule, .logical_memory = true})),
        device_(make_cuda_device({.budget_bytes = 32 * kMiB, .library_bytes = 0}, fake_)),
        all_(device_->reserve(kGranules * kGranule)),
        committed_(kGranules) {
    fake_->set_device(0);
    fake_->stream_create(stream_);
  }

  void step() {
    const std::uint64_t first = random_() % kGranules;
    const std::uint64_t count = run_from(first, 1 + random_() % 200);
    const CudaStatus refusal = random_() % 2 == 0 ? CudaStatus::kMemoryAllocation : CudaStatus::kNotSupported;
    fake_->fail_call(1 + random_() % 40, refusal);
    const bool commits = !committed_[first];
    const bool done = attempt([&] { change(granules(first, count), commits); });
    fake_->fail_call(0, CudaStatus::kSuccess);
    if (!done && commits) {
      return;  // a refused call changes nothing
    }
    for (std::uint64_t i = first; i < first + count; ++i) {
      committed_[i] = commits;
      if (!done) {  // a part is decommitted
        attempt([&] { change(granules(i, 1), false); });
      }
    }
  }

  void expect_that_what_is_committed_can_be_touched() {
    std::uint64_t bytes = 0;
    for_each_committed([&](AddressRange granule) {
      const Access access{.range = granule};
      FakeCuda::launch(stream_, [] {}, {.name = "touch", .reads = {&access, 1}, .writes = {}});
      bytes += granule.bytes;
    });
    EXPECT_EQ(fake_->stream_synchronize(stream_), CudaStatus::kSuccess);
    EXPECT_GE(fake_->mapped_bytes(), bytes);
    EXPECT_THAT(fake_->findings(), IsEmpty());
  }

  void expect_that_all_goes_back() {
    for_each_committed([&](AddressRange granule) { change(granule, false); });
    device_->unreserve(all_);
    EXPECT_EQ(fake_->mapped_bytes(), 0U);
    fake_->stream_destroy(stream_);
    EXPECT_THAT(fake_->misuses(), IsEmpty());
  }

 private:
  AddressRange granules(std::uint64_t first, std::uint64_t count) const {
    return {.begin = all_.begin + first * kGranule, .bytes = count * kGranule};
  }
  // The number of granules from `first` on in the same state, at most `most`.
  std::uint64_t run_from(std::uint64_t first, std::uint64_t most) const {
    std::uint64_t end = first;
    while (end < std::min(first + most, kGranules) && committed_[end] == committed_[first]) {
      ++end;
    }
    return end - first;
  }
  void change(AddressRange range, bool commits) {
    commits ? device_->commit(range) : device_->decommit(range);
  }
  template <class Call>
  static bool attempt(const Call& call) {
    try {
      call();
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  template <class Visit>
  void for_each_committed(const Visit& visit) const {
    for (std::uint64_t i = 0; i < kGranules; ++i) {
      if (committed_[i]) {
        visit(granules(i, 1));
      }
    }
  }

  std::mt19937_64 random_;
  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<Device> device_;
  const AddressRange all_;
  std::vector<bool> committed_;
  CudaStream stream_ = nullptr;
};

TEST(CudaMemory, AnySequenceOfCommitsKeepsWhatIsCommitted) {
  const std::uint64_t seeds = testing::extent({.usual = 40, .under_sanitizers = 8, .in_long_run = 1000});
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomCommits commits(seed);
    for (int step = 0; step < 200 && !::testing::Test::HasFailure(); ++step) {
      commits.step();
      commits.expect_that_what_is_committed_can_be_touched();
    }
    commits.expect_that_all_goes_back();
  }
}

}  // namespace
}  // namespace vdnn
