#include "bench/torch_rules.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace vdnn::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

// The allocator with blocks numbered in order of allocation.
class Torch {
 public:
  explicit Torch(TorchSegments segments) : rules_(segments) {}

  std::uint64_t allocate(std::uint64_t bytes, std::uint32_t stream = 0) {
    rules_.allocate(next_, bytes, stream, false);
    return next_++;
  }
  void free(std::uint64_t block) { rules_.free(block, 0); }
  double reserved_mib() const {
    return static_cast<double>(rules_.reserved_bytes()) / static_cast<double>(kMiB);
  }

 private:
  TorchRules rules_;
  std::uint64_t next_ = 0;
};

TEST(TorchRulesWithFixedSegments, SmallRequestsShareSegmentsOf2MiB) {
  Torch torch(TorchSegments::kFixed);
  torch.allocate(0);
  torch.allocate(kMiB);
  EXPECT_EQ(torch.reserved_mib(), 2);
  torch.allocate(kMiB - 512);
  EXPECT_EQ(torch.reserved_mib(), 2) << "the segment is used to its last unit";
  torch.allocate(1);
  EXPECT_EQ(torch.reserved_mib(), 4);
}

TEST(TorchRulesWithFixedSegments, MiddleRequestsShareSegmentsOf20MiB) {
  Torch torch(TorchSegments::kFixed);
  torch.allocate(kMiB + 1);
  EXPECT_EQ(torch.reserved_mib(), 20);
  torch.allocate(9 * kMiB);
  torch.allocate(8 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 20);
  torch.allocate(2 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 40) << "the first segment has less than 2 MiB left";
}

TEST(TorchRulesWithFixedSegments, LargeRequestsHaveTheirOwnAndSmallRestsStayWithThem) {
  Torch torch(TorchSegments::kFixed);
  const std::uint64_t block = torch.allocate(11 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 12);
  torch.allocate(kMiB + 512);
  EXPECT_EQ(torch.reserved_mib(), 32) << "a remainder of 1 MiB is not split off";
  torch.free(block);
  torch.allocate(12 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 32);
}

TEST(TorchRulesWithFixedSegments, NeighboursMergeWithinASegmentAndSegmentsDoNot) {
  Torch torch(TorchSegments::kFixed);
  const std::uint64_t a = torch.allocate(9 * kMiB);
  const std::uint64_t b = torch.allocate(9 * kMiB);
  const std::uint64_t c = torch.allocate(20 * kMiB);
  for (const std::uint64_t block : {a, b, c}) {
    torch.free(block);
  }
  torch.allocate(20 * kMiB);
  torch.allocate(20 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 40);
  Torch apart(TorchSegments::kFixed);
  for (const std::uint64_t block : {apart.allocate(20 * kMiB), apart.allocate(30 * kMiB)}) {
    apart.free(block);
  }
  apart.allocate(50 * kMiB);
  EXPECT_EQ(apart.reserved_mib(), 100);
}

TEST(TorchRules, StreamsDoNotShareWhatIsFree) {
  for (const TorchSegments segments : {TorchSegments::kFixed, TorchSegments::kExpandable}) {
    Torch torch(segments);
    torch.free(torch.allocate(20 * kMiB, 1));
    torch.allocate(20 * kMiB, 2);
    EXPECT_EQ(torch.reserved_mib(), 40);
    torch.allocate(20 * kMiB, 1);
    EXPECT_EQ(torch.reserved_mib(), 40);
  }
}

TEST(TorchRulesWithExpandableSegments, GrowAtTheEndByWhatIsMissing) {
  Torch torch(TorchSegments::kExpandable);
  const std::uint64_t a = torch.allocate(3 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 20);
  const std::uint64_t b = torch.allocate(30 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 40) << "of 30 MiB, 17 are reserved and 13 are missing";
  torch.free(a);
  torch.free(b);
  torch.allocate(40 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 40) << "all of it is one segment";
  torch.allocate(512);
  EXPECT_EQ(torch.reserved_mib(), 42) << "small requests have their own segment";
}

TEST(TorchRulesWithExpandableSegments, TheEndIsTakenLast) {
  Torch torch(TorchSegments::kExpandable);
  const std::uint64_t hole = torch.allocate(12 * kMiB);
  torch.allocate(2 * kMiB);  // 6 MiB are left at the end
  torch.free(hole);
  torch.allocate(5 * kMiB);  // into the hole, though the end is the better fit
  torch.allocate(6 * kMiB);
  torch.allocate(6 * kMiB);
  EXPECT_EQ(torch.reserved_mib(), 20);
}

// After all frees, each segment is one piece again, whatever happened earlier.
TEST(TorchRules, EverythingComesBack) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Torch torch(TorchSegments::kExpandable);
    std::vector<std::uint64_t> live;
    for (int i = 0; i < 300; ++i) {
      if (live.empty() || random() % 2 == 0) {
        live.push_back(torch.allocate(2 * kMiB + random() % (30 * kMiB)));
      } else {
        std::swap(live[random() % live.size()], live.back());
        torch.free(live.back());
        live.pop_back();
      }
    }
    for (const std::uint64_t block : live) {
      torch.free(block);
    }
    const double reserved = torch.reserved_mib();
    torch.allocate(static_cast<std::uint64_t>(reserved) * kMiB);
    EXPECT_EQ(torch.reserved_mib(), reserved);
  }
}

}  // namespace
}  // namespace vdnn::bench
