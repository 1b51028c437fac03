// Compares the allocator of offsets, whose memory is committed and decommitted, with a model that has one
// entry per unit.

#include "allocator/sparse_tlsf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn::sparse_tlsf_test {
namespace {

constexpr std::uint64_t kUnit = 64;
constexpr std::uint64_t kGranule = 4 * kUnit;
constexpr std::uint64_t kRange = 96 * kGranule;

Frontier at(StreamId stream, std::uint64_t count) {
  return Frontier(Point{.stream = stream, .count = count});
}

// Allocates a block. If none fits, first commits memory at the placement that needs the fewest bytes.
std::optional<Tlsf::Block> take(SparseTlsf& tlsf, std::uint64_t bytes, const Frontier& requester = {}) {
  std::optional<Tlsf::Block> block = tlsf.allocate(bytes, requester);
  if (!block) {
    const std::optional<SparseTlsf::Placement> placement = tlsf.choose_placement(bytes, kGranule);
    if (!placement) {
      return std::nullopt;
    }
    for (const Tlsf::Extent& hole : placement->to_commit) {
      tlsf.commit(hole);
    }
    block = tlsf.allocate(bytes, requester);
    EXPECT_TRUE(block.has_value()) << "the chosen placement suffices";
  }
  return block;
}

class RandomVacancies {
 public:
  explicit RandomVacancies(std::uint64_t seed) : random_(seed), units_(kRange / kUnit, State::kVacant) {
    tlsf_.append_vacancy(kRange);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      switch (random_() % 5) {
        case 0:
        case 1:
          allocate();
          break;
        case 2:
        case 3:
          free();
          break;
        default:
          decommit();
      }
      check();
    }
  }

 private:
  using State = Tlsf::State;

  void set(std::uint64_t offset, std::uint64_t bytes, State from, State to) {
    for (std::uint64_t i = offset / kUnit; i < (offset + bytes) / kUnit; ++i) {
      ASSERT_EQ(units_[i], from);
      units_[i] = to;
    }
  }

  // Bytes to commit so that `count` units from `first` on are free; none if that is impossible.
  std::optional<std::uint64_t> lacking(std::uint64_t first, std::uint64_t count) const {
    constexpr std::uint64_t kUnits = kGranule / kUnit;
    std::uint64_t bytes = 0;
    std::uint64_t last = ~std::uint64_t{0};
    for (std::uint64_t i = first; i < first + count; ++i) {
      if (i >= units_.size() || units_[i] == State::kInUse) {
        return std::nullopt;
      }
      if (units_[i] == State::kVacant && i / kUnits != last) {
        last = i / kUnits;
        bytes += kGranule;
      }
    }
    return bytes;
  }

  void check_placement(std::uint64_t bytes) {
    const std::uint64_t count = (bytes + kUnit - 1) / kUnit;
    std::optional<std::uint64_t> least;
    for (std::uint64_t first = 0; first < units_.size(); ++first) {
      if (const auto here = lacking(first, count); here && (!least || *here < *least)) {
        least = here;
      }
    }
    const std::optional<SparseTlsf::Placement> placement = tlsf_.choose_placement(bytes, kGranule);
    ASSERT_EQ(placement.has_value(), least.has_value());
    if (placement) {
      ASSERT_EQ(placement->bytes_to_commit, *least);
      std::uint64_t sum = 0;
      for (const Tlsf::Extent& hole : placement->to_commit) {
        sum += hole.bytes;
        set(hole.offset, hole.bytes, State::kVacant, State::kFree);
      }
      ASSERT_EQ(sum, *least);
      ASSERT_EQ(lacking(placement->extent.offset / kUnit, count), 0U) << "the whole placement is committed";
    }
  }

  void allocate() {
    const std::uint64_t bytes = 1 + random_() % (kUnit << (random_() % 8));
    std::optional<Tlsf::Block> block = tlsf_.allocate(bytes, {});
    if (!block) {
      check_placement(bytes);
      block = take(tlsf_, bytes);
    }
    if (block) {
      set(block->offset, block->bytes, State::kFree, State::kInUse);
      live_[block->offset] = bytes;
    }
  }

  void free() {
    if (live_.empty()) {
      return;
    }
    const auto block = std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_() % live_.size()));
    const auto [offset, bytes] = *block;
    live_.erase(block);
    const Tlsf::Extent merged = tlsf_.free(offset, bytes, at(1, ++frees_));
    set(offset, (bytes + kUnit - 1) / kUnit * kUnit, State::kInUse, State::kFree);
    ASSERT_EQ(lacking(merged.offset / kUnit, merged.bytes / kUnit), 0U);
    ASSERT_TRUE(merged.offset <= offset && offset < merged.end());
  }

  // Decommits some whole granules of any free block.
  void decommit() {
    struct Free {
      Tlsf::Index block;
      Tlsf::Extent extent;
    };
    std::vector<Free> blocks;
    tlsf_.for_each_free([&](Tlsf::Index block, Tlsf::Extent extent, const Frontier&) {
      const std::uint64_t begin = (extent.offset + kGranule - 1) / kGranule * kGranule;
      const std::uint64_t end = extent.end() / kGranule * kGranule;
      if (begin < end) {
        blocks.push_back({.block = block, .extent = {.offset = begin, .bytes = end - begin}});
      }
    });
    if (blocks.empty()) {
      return;
    }
    const Free& chosen = blocks[random_() % blocks.size()];
    const std::uint64_t granules = chosen.extent.bytes / kGranule;
    const std::uint64_t first = random_() % granules;
    const std::uint64_t count = 1 + random_() % (granules - first);
    const Tlsf::Extent part{.offset = chosen.extent.offset + first * kGranule, .bytes = count * kGranule};
    tlsf_.prepare_to_decommit(chosen.block);
    tlsf_.decommit(chosen.block, part);
    set(part.offset, part.bytes, State::kFree, State::kVacant);
  }

  void check() {
    std::uint64_t end = kRange;
    std::uint64_t vacant = 0;
    std::uint64_t largest = 0;
    std::uint64_t free_blocks = 0;
    std::optional<State> behind;
    tlsf_.for_each_from_the_end([&](Tlsf::Extent extent, State state) {
      ASSERT_EQ(extent.end(), end);
      end = extent.offset;
      ASSERT_TRUE(state == State::kInUse || behind != state) << "not merged";
      behind = state;
      for (std::uint64_t i = extent.offset / kUnit; i < extent.end() / kUnit; ++i) {
        ASSERT_EQ(units_[i], state);
      }
      vacant += state == State::kVacant ? extent.bytes : 0;
      largest = std::max(largest, state == State::kFree ? extent.bytes : 0);
      free_blocks += state == State::kFree ? 1U : 0U;
    });
    ASSERT_EQ(end, 0U);
    ASSERT_EQ(tlsf_.vacant_bytes(), vacant);
    ASSERT_EQ(tlsf_.largest_free_block_bytes(), largest);
    std::uint64_t listed = 0;
    tlsf_.for_each_free([&](Tlsf::Index, Tlsf::Extent, const Frontier&) { ++listed; });
    ASSERT_EQ(listed, free_blocks) << "each free block is in a list or is the tail";
  }

  std::mt19937_64 random_;
  SparseTlsf tlsf_{kUnit};
  std::vector<State> units_;
  std::map<std::uint64_t, std::uint64_t> live_;
  std::uint64_t frees_ = 0;
};

TEST(SparseTlsf, AreWhatTheModelSays) {
  for (std::uint64_t seed = 0; seed < 60 && !::testing::Test::HasFailure(); ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "RandomVacancies(" + std::to_string(seed) + ")");
    RandomVacancies(seed).run(500);
  }
}

TEST(SparseTlsf, NothingIsFreeAtFirst) {
  SparseTlsf tlsf(kUnit);
  tlsf.append_vacancy(kRange);
  EXPECT_EQ(tlsf.allocate(1, {}), std::nullopt);
  EXPECT_FALSE(tlsf.choose_placement(kRange + 1, kGranule).has_value());
  EXPECT_EQ(tlsf.choose_placement(1, kGranule)->bytes_to_commit, kGranule);
  EXPECT_EQ(tlsf.vacant_bytes(), kRange);
}

// Fresh memory has no earlier users, but the free memory that it is merged with has some.
TEST(SparseTlsf, CommittedMemoryHasNoEarlierUsers) {
  SparseTlsf tlsf(kUnit);
  tlsf.append_vacancy(kRange);
  const Tlsf::Block first = take(tlsf, kGranule).value();
  tlsf.free(first.offset, kGranule, at(1, 7));
  EXPECT_EQ(tlsf.allocate(kGranule, {})->frontier, at(1, 7));
  EXPECT_TRUE(take(tlsf, kGranule)->frontier.empty());
  tlsf.free(first.offset, kGranule, at(1, 8));
  // A granule that is decommitted and committed again has lost its earlier users.
  std::optional<Tlsf::Index> only;
  tlsf.for_each_free([&](Tlsf::Index block, Tlsf::Extent, const Frontier&) { only = block; });
  ASSERT_TRUE(only.has_value());
  tlsf.prepare_to_decommit(*only);
  tlsf.decommit(*only, {.offset = 0, .bytes = kGranule});
  EXPECT_TRUE(take(tlsf, kGranule)->frontier.empty());
}

TEST(SparseTlsf, OnlyAVacancyIsCommitted) {
  SparseTlsf tlsf(kUnit);
  tlsf.append_vacancy(kRange);
  take(tlsf, kGranule);
  EXPECT_THROW(tlsf.commit({.offset = 0, .bytes = kGranule}), InvalidArgument);
  EXPECT_THROW(tlsf.commit({.offset = kRange, .bytes = kGranule}), InvalidArgument);
  EXPECT_EQ(tlsf.vacant_bytes(), kRange - kGranule);
}

}  // namespace
}  // namespace vdnn::sparse_tlsf_test
