#include "allocator/tlsf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/heap.h"
#include "vdnn/error.h"

namespace vdnn::tlsf_test {
namespace {

constexpr std::uint64_t kUnit = 64;

Frontier at(StreamId stream, std::uint64_t count) {
  return Frontier(Point{.stream = stream, .count = count});
}

Frontier joined(Frontier a, const Frontier& b) {
  a.join(b);
  return a;
}

// Grows the range by the missing units if no block fits.
Tlsf::Block take(Tlsf& tlsf, std::uint64_t bytes, const Frontier& requester = {}) {
  std::optional<Tlsf::Block> block = tlsf.allocate(bytes, requester);
  if (!block) {
    tlsf.grow(tlsf.missing(bytes));
    block = tlsf.allocate(bytes, requester);
  }
  EXPECT_TRUE(block.has_value());
  return block.value_or(Tlsf::Block{});
}

TEST(TlsfShrink, TakesOffTheTailAndNothingElse) {
  Tlsf tlsf(kUnit);
  tlsf.grow(8 * kUnit);
  const Tlsf::Block block = take(tlsf, 3 * kUnit);
  const Tlsf::Block last = take(tlsf, 2 * kUnit);
  EXPECT_THROW(tlsf.shrink(4 * kUnit), InvalidArgument);
  tlsf.shrink(kUnit);
  EXPECT_EQ(tlsf.end(), 7 * kUnit);
  EXPECT_EQ(tlsf.tail_bytes(), 2 * kUnit);
  tlsf.shrink(2 * kUnit);
  EXPECT_EQ(tlsf.tail_bytes(), 0U);
  EXPECT_THROW(tlsf.shrink(kUnit), InvalidArgument);
  tlsf.free(block.offset, 3 * kUnit, at(1, 1));
  EXPECT_EQ(tlsf.tail_bytes(), 0U) << "a hole is no tail";
  tlsf.free(last.offset, 2 * kUnit, at(2, 1));
  EXPECT_EQ(tlsf.tail_frontier(), joined(at(1, 1), at(2, 1)));
  tlsf.shrink(5 * kUnit);
  EXPECT_EQ(tlsf.end(), 0U);
  tlsf.grow(kUnit);
  EXPECT_EQ(take(tlsf, kUnit).frontier, joined(at(1, 1), at(2, 1))) << "the offsets' earlier users";
}

// The expected bookkeeping, one entry per unit.
class NaiveModel {
 public:
  void grow(std::uint64_t units) { units_.resize(units_.size() + units); }

  void allocate(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      ASSERT_LT(i, units_.size()) << "beyond the end";
      ASSERT_FALSE(units_[i].used) << "overlap at unit " << i;
      units_[i].used = true;
    }
  }

  void free(std::uint64_t first, std::uint64_t count, const Frontier& last_use) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      units_[i].used = false;
      if (!last_use.empty()) {
        units_[i].frontier = last_use;
      }
    }
  }

  bool dominated(std::uint64_t first, std::uint64_t count, const Frontier& frontier) const {
    return std::all_of(units_.begin() + static_cast<std::ptrdiff_t>(first),
                       units_.begin() + static_cast<std::ptrdiff_t>(first + count),
                       [&](const Unit& unit) { return frontier.dominates(unit.frontier); });
  }

  struct Run {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  std::vector<Run> free_runs() const {
    std::vector<Run> runs;
    for (std::uint64_t i = 0; i < units_.size(); ++i) {
      if (units_[i].used) {
        continue;
      }
      if (i == 0 || units_[i - 1].used) {
        runs.push_back({.first = i, .count = 0});
      }
      ++runs.back().count;
    }
    return runs;
  }

  std::uint64_t used_units() const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(units_, [](const Unit& unit) { return unit.used; }));
  }
  std::uint64_t size() const { return units_.size(); }

 private:
  struct Unit {
    bool used = false;
    Frontier frontier;
  };
  std::vector<Unit> units_;
};

void expect_equal(const Tlsf& tlsf, const NaiveModel& model) {
  const std::vector<NaiveModel::Run> runs = model.free_runs();
  const std::vector<Tlsf::Block> blocks = tlsf.free_blocks();
  ASSERT_EQ(blocks.size(), runs.size()) << "merging is not complete";
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ASSERT_EQ(blocks[i].offset, runs[i].first * kUnit);
    ASSERT_EQ(blocks[i].bytes, runs[i].count * kUnit);
    ASSERT_TRUE(model.dominated(runs[i].first, runs[i].count, blocks[i].frontier)) << "a frontier was lost";
    largest = std::max(largest, blocks[i].bytes);
  }
  ASSERT_EQ(tlsf.largest_free_block_bytes(), largest);
  ASSERT_EQ(tlsf.in_use_bytes(), model.used_units() * kUnit);
  ASSERT_EQ(tlsf.end(), model.size() * kUnit);
  const bool tail = !runs.empty() && runs.back().first + runs.back().count == model.size();
  ASSERT_EQ(tlsf.tail_bytes(), tail ? runs.back().count * kUnit : 0);
}

// Mostly small sizes, so that many classes contain blocks of different sizes.
std::uint64_t random_size(std::mt19937_64& random) {
  const auto log = std::uniform_int_distribution<unsigned>(0, 13)(random);
  return std::uniform_int_distribution<std::uint64_t>(0, std::uint64_t{1} << log)(random);
}

struct Taken {
  std::uint64_t offset = 0;
  std::uint64_t asked = 0;
  std::uint64_t units = 0;
};

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed) {}

  void step() {
    if (taken_.empty() || random_() % 100 < 54) {
      allocate();
    } else {
      free();
    }
    expect_equal(tlsf_, model_);
  }

 private:
  Frontier random_frontier() {
    Frontier frontier;
    for (StreamId stream = 0; stream < 3; ++stream) {
      if (random_() % 2 == 0) {
        frontier.join(Point{.stream = stream, .count = random_() % 20});
      }
    }
    return frontier;
  }

  void allocate() {
    const std::uint64_t asked = random_size(random_);
    const std::uint64_t units = std::max<std::uint64_t>(1, (asked + kUnit - 1) / kUnit);
    const Frontier requester = random_frontier();
    std::optional<Tlsf::Block> block = tlsf_.allocate(asked, requester);
    const auto runs = model_.free_runs();
    const bool fits = std::ranges::any_of(runs, [&](const auto& run) { return run.count >= units; });
    ASSERT_EQ(block.has_value(), fits) << "a fitting block of " << asked << " bytes was overlooked";
    if (!block) {
      const std::uint64_t missing = tlsf_.missing(asked);
      ASSERT_EQ(missing, units * kUnit - tlsf_.tail_bytes());
      const std::uint64_t extra = random_() % 4;
      tlsf_.grow(missing + extra * kUnit);
      model_.grow(missing / kUnit + extra);
      block = tlsf_.allocate(asked, requester);
      ASSERT_TRUE(block.has_value());
    }
    ASSERT_EQ(block->offset % kUnit, 0U);
    ASSERT_EQ(block->bytes, units * kUnit);
    ASSERT_TRUE(model_.dominated(block->offset / kUnit, units, block->frontier));
    model_.allocate(block->offset / kUnit, units);
    taken_.push_back({.offset = block->offset, .asked = std::max<std::uint64_t>(asked, 1), .units = units});
  }

  void free() {
    std::swap(taken_[random_() % taken_.size()], taken_.back());
    const Taken gone = taken_.back();
    taken_.pop_back();
    const Frontier last_use = random_frontier();
    tlsf_.free(gone.offset, gone.asked, last_use);
    model_.free(gone.offset / kUnit, gone.units, last_use);
  }

  std::mt19937_64 random_;
  Tlsf tlsf_{kUnit};
  NaiveModel model_;
  std::vector<Taken> taken_;
};

TEST(Tlsf, AgreesWithANaiveModelUnderRandomOperations) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RandomRun run(seed);
    for (int step = 0; step < 500; ++step) {
      ASSERT_NO_FATAL_FAILURE(run.step());
      ASSERT_FALSE(::testing::Test::HasFailure())
          << "reproduce with RandomRun(" << seed << "), step " << step;
    }
  }
}

TEST(Tlsf, RangeIsEmptyAtFirst) {
  Tlsf tlsf(kUnit);
  EXPECT_FALSE(tlsf.allocate(1, {}).has_value());
  EXPECT_EQ(tlsf.missing(1), kUnit);
  EXPECT_EQ(tlsf.end(), 0U);
  EXPECT_TRUE(tlsf.free_blocks().empty());
}

// A known defect of TLSF allocators: good fit searches only classes above the request's own. So it overlooks
// a fitting block of the request's own class, and reports exhaustion or grows the range. Here smaller blocks
// precede the only fitting block in the list of its class. They are more than the kCandidates blocks that the
// search tries first.
TEST(Tlsf, FindsTheOnlyFittingBlockOfItsOwnClass) {
  Tlsf tlsf(1);
  constexpr std::uint64_t kSmall = 1024;
  constexpr std::uint64_t kFitting = 1055;  // the same class: 1024 to 1055
  const Tlsf::Block fitting = take(tlsf, kFitting);
  take(tlsf, 1);
  std::vector<Tlsf::Block> small;
  for (int i = 0; i < 3 * Tlsf::kCandidates; ++i) {
    small.push_back(take(tlsf, kSmall));
    take(tlsf, 1);
  }
  tlsf.free(fitting.offset, kFitting, at(0, 1));
  for (const Tlsf::Block& block : small) {
    tlsf.free(block.offset, kSmall, at(0, 1));
  }
  ASSERT_EQ(tlsf.tail_bytes(), 0U);
  const auto found = tlsf.allocate(1050, {});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->offset, fitting.offset);
}

TEST(Tlsf, ReusesAnExactFitRatherThanSplittingALargerBlock) {
  Tlsf tlsf(1);
  const Tlsf::Block exact = take(tlsf, 1040);
  take(tlsf, 1);
  const Tlsf::Block larger = take(tlsf, 4000);
  take(tlsf, 1);
  tlsf.free(exact.offset, 1040, {});
  tlsf.free(larger.offset, 4000, {});
  EXPECT_EQ(take(tlsf, 1040).offset, exact.offset);
}

TEST(Tlsf, PrefersABlockThatTheRequesterNeedNotWaitFor) {
  Tlsf tlsf(kUnit);
  std::vector<Tlsf::Block> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(take(tlsf, 640));
    take(tlsf, 64);
  }
  tlsf.free(blocks[0].offset, 640, at(0, 1));
  tlsf.free(blocks[1].offset, 640, at(1, 1));
  tlsf.free(blocks[2].offset, 640, at(2, 1));
  EXPECT_EQ(take(tlsf, 640, at(0, 1)).offset, blocks[0].offset);
  EXPECT_EQ(take(tlsf, 640, at(3, 1)).offset, blocks[2].offset) << "freed last, reused first";
}

TEST(Tlsf, TakesHolesBeforeTheTailEvenWhereTheRequesterMustWait) {
  Tlsf tlsf(kUnit);
  const Tlsf::Block hole = take(tlsf, 640);
  take(tlsf, 64);
  tlsf.grow(64 * kUnit);
  tlsf.free(hole.offset, 640, at(1, 5));
  EXPECT_EQ(take(tlsf, 64).offset, hole.offset);
}

TEST(Tlsf, GrowthExtendsTheTailByWhatIsMissing) {
  Tlsf tlsf(kUnit);
  const Tlsf::Block first = take(tlsf, 10 * kUnit);
  tlsf.free(first.offset, 10 * kUnit, at(0, 1));
  EXPECT_EQ(tlsf.missing(16 * kUnit), 6 * kUnit);
  const Tlsf::Block second = take(tlsf, 16 * kUnit);
  EXPECT_EQ(second.offset, 0U);
  EXPECT_EQ(second.frontier, at(0, 1));
  EXPECT_EQ(tlsf.end(), 16 * kUnit);
}

TEST(Tlsf, MergingJoinsFrontiersAndSplittingKeepsThem) {
  Tlsf tlsf(kUnit);
  const Tlsf::Block a = take(tlsf, 2 * kUnit);
  const Tlsf::Block b = take(tlsf, 2 * kUnit);
  const Tlsf::Block c = take(tlsf, 2 * kUnit);
  take(tlsf, kUnit);
  tlsf.free(a.offset, 2 * kUnit, at(0, 3));
  tlsf.free(c.offset, 2 * kUnit, at(2, 4));
  tlsf.free(b.offset, 2 * kUnit, at(1, 5));
  const Frontier all = joined(joined(at(0, 3), at(1, 5)), at(2, 4));
  ASSERT_EQ(tlsf.free_blocks().size(), 1U);
  EXPECT_EQ(tlsf.free_blocks()[0].frontier, all);
  EXPECT_EQ(take(tlsf, kUnit).frontier, all);
  EXPECT_EQ(tlsf.free_blocks()[0].frontier, all);
}

TEST(Tlsf, BlockFreedUnusedKeepsTheFrontierOfTheUsersBefore) {
  Tlsf tlsf(kUnit);
  const Tlsf::Block block = take(tlsf, kUnit);
  tlsf.free(block.offset, kUnit, at(0, 7));
  take(tlsf, kUnit);
  tlsf.free(0, kUnit, {});
  EXPECT_EQ(take(tlsf, kUnit).frontier, at(0, 7));
  tlsf.set_frontier(0, kUnit, at(1, 1));
  tlsf.free(0, kUnit, {});
  // At the end of the range, the earlier users' frontier is kept as well.
  EXPECT_TRUE(take(tlsf, kUnit).frontier.dominates(at(1, 1)));
}

TEST(Tlsf, FreeingWhatIsNotInUseChangesNothing) {
  Tlsf tlsf(kUnit);
  take(tlsf, 100);
  const Tlsf::Block second = take(tlsf, 100);
  tlsf.free(second.offset, 100, at(0, 1));
  EXPECT_THROW(tlsf.free(second.offset, 100, at(0, 2)), InvalidArgument) << "twice";
  EXPECT_THROW(tlsf.free(kUnit, 100, {}), InvalidArgument) << "inside a block";
  EXPECT_THROW(tlsf.free(0, 101, {}), InvalidArgument) << "of another size";
  EXPECT_THROW(tlsf.free(~std::uint64_t{0}, 100, {}), InvalidArgument);
  EXPECT_THROW(tlsf.set_frontier(second.offset, 100, {}), InvalidArgument);
  EXPECT_THROW(tlsf.in_use(second.offset, 100), InvalidArgument);
  EXPECT_EQ(tlsf.blocks_in_use(), 1U);
  EXPECT_EQ(tlsf.asked_bytes(), 100U);
  EXPECT_EQ(tlsf.in_use_bytes(), 2 * kUnit);
  ASSERT_EQ(tlsf.free_blocks().size(), 1U);
  EXPECT_EQ(tlsf.free_blocks()[0].frontier, at(0, 1));
}

TEST(Tlsf, ZeroBytesCountAsOne) {
  Tlsf tlsf(kUnit);
  EXPECT_EQ(take(tlsf, 0).bytes, kUnit);
  EXPECT_EQ(tlsf.asked_bytes(), 1U);
  tlsf.free(0, 1, {});
  EXPECT_EQ(tlsf.in_use_bytes(), 0U);
}

TEST(Tlsf, HoldsSizesUpToTheEndOfTheAddressSpace) {
  Tlsf tlsf(1);
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
  take(tlsf, kHuge);
  take(tlsf, 1);
  tlsf.free(0, kHuge, {});
  EXPECT_EQ(tlsf.largest_free_block_bytes(), kHuge);
  EXPECT_EQ(take(tlsf, kHuge - 1).offset, 0U);
  Tlsf coarse(kUnit);
  EXPECT_THROW(static_cast<void>(coarse.allocate(~std::uint64_t{0}, {})), InvalidArgument);
}

// Allocations and frees in a random order, everything free at the end.
struct Step {
  bool frees = false;
  std::size_t block = 0;
  std::uint64_t bytes = 0;
};

std::vector<Step> random_steps(std::uint64_t seed, std::size_t blocks) {
  std::mt19937_64 random(seed);
  std::vector<Step> steps;
  std::vector<Step> live;
  for (std::size_t block = 0; block < blocks || !live.empty();) {
    if (block < blocks && (live.empty() || random() % 100 < 55)) {
      const Step step{.frees = false, .block = block++, .bytes = random_size(random)};
      steps.push_back(step);
      live.push_back(step);
    } else {
      std::swap(live[random() % live.size()], live.back());
      live.back().frees = true;
      steps.push_back(live.back());
      live.pop_back();
    }
  }
  return steps;
}

std::vector<std::uint64_t> run_steps(Tlsf& tlsf, const std::vector<Step>& steps) {
  std::map<std::size_t, std::uint64_t> live;
  std::vector<std::uint64_t> offsets;
  for (const Step& step : steps) {
    if (step.frees) {
      tlsf.free(live.at(step.block), std::max<std::uint64_t>(step.bytes, 1), {});
    } else {
      live[step.block] = take(tlsf, step.bytes).offset;
      offsets.push_back(live[step.block]);
    }
  }
  return offsets;
}

// The range grows only in the first pass.
TEST(Tlsf, TheSameSequenceGetsTheSameOffsetsAgain) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Tlsf tlsf(kUnit);
    for (std::uint64_t bytes = 1000; bytes < 1000 + seed % 5; ++bytes) {
      take(tlsf, bytes);  // stays allocated
    }
    const std::vector<Step> steps = random_steps(seed, 200);
    const std::vector<std::uint64_t> first = run_steps(tlsf, steps);
    const std::uint64_t end = tlsf.end();
    for (int pass = 0; pass < 2; ++pass) {
      ASSERT_EQ(tlsf.free_blocks().size(), 1U) << "reproduce with random_steps(" << seed << ", 200)";
      ASSERT_EQ(run_steps(tlsf, steps), first) << "reproduce with random_steps(" << seed << ", 200)";
      ASSERT_EQ(tlsf.end(), end);
    }
  }
}

TEST(Tlsf, TakesNothingFromTheHeapInTheSteadyState) {
  Tlsf tlsf(kUnit);
  const std::vector<Step> steps = random_steps(1, 500);
  std::vector<std::uint64_t> offsets(500);
  const auto pass = [&] {
    for (const Step& step : steps) {
      if (step.frees) {
        tlsf.free(offsets[step.block], std::max<std::uint64_t>(step.bytes, 1), at(1, 1));
      } else {
        offsets[step.block] = take(tlsf, step.bytes).offset;
      }
    }
  };
  pass();
  const std::uint64_t before = heap_allocations();
  pass();
  EXPECT_EQ(heap_allocations(), before);
}

}  // namespace
}  // namespace vdnn::tlsf_test
