#include "src/data/batch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn::batch_order_test {
namespace {

std::vector<std::uint64_t> epoch(const BatchOrder& order, std::uint64_t number) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t batch = 0; batch < order.batches_per_epoch(); ++batch) {
    const auto indices = order.indices(number * order.batches_per_epoch() + batch);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

std::vector<std::uint64_t> ascending(std::uint64_t count) {
  std::vector<std::uint64_t> result(count);
  std::iota(result.begin(), result.end(), std::uint64_t{0});
  return result;
}

TEST(BatchOrder, CountsBatches) {
  EXPECT_EQ((BatchOrder{.samples = 10, .batch = 5}.batches_per_epoch()), 2U);
  EXPECT_EQ((BatchOrder{.samples = 11, .batch = 5}.batches_per_epoch()), 3U);
  EXPECT_EQ((BatchOrder{.samples = 1, .batch = 5}.batches_per_epoch()), 1U);
}

TEST(BatchOrder, KnowsTheEpochOfABatch) {
  const BatchOrder order{.samples = 11, .batch = 5};
  EXPECT_EQ(order.epoch(0), 0U);
  EXPECT_EQ(order.epoch(2), 0U);
  EXPECT_EQ(order.epoch(3), 1U);
  EXPECT_EQ(order.epoch(3'000'000'001), 1'000'000'000U);
}

TEST(BatchOrder, EvaluationIsInOrderAndTheLastBatchMayBeShort) {
  const BatchOrder order{.samples = 7, .batch = 3, .shuffle = false, .seed = 5};
  EXPECT_EQ(order.indices(0), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(order.indices(2), (std::vector<std::uint64_t>{6}));
  EXPECT_EQ(order.indices(3), (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST(BatchOrder, EveryEpochBeginsWithEverySampleOnce) {
  for (const std::uint64_t samples : {1U, 2U, 64U, 101U, 1000U}) {
    const BatchOrder order{.samples = samples, .batch = 8, .shuffle = true, .seed = 3};
    for (std::uint64_t number = 0; number < 3; ++number) {
      auto all = epoch(order, number);
      all.resize(samples);
      std::ranges::sort(all);
      EXPECT_EQ(all, ascending(samples)) << samples << " samples, epoch " << number;
    }
  }
}

// Regression: an epoch's last batch was short and padded with zeros, which batch normalisation treated as
// samples.
TEST(BatchOrder, TrainingFillsTheLastBatchOfAnEpochFromItsBeginning) {
  for (const std::uint64_t samples : {1U, 3U, 8U, 20U, 101U}) {
    const BatchOrder order{.samples = samples, .batch = 8, .shuffle = true, .seed = 3};
    for (std::uint64_t number = 0; number < 3; ++number) {
      const auto all = epoch(order, number);
      ASSERT_EQ(all.size(), order.batches_per_epoch() * 8);
      for (std::size_t i = samples; i < all.size(); ++i) {
        EXPECT_EQ(all[i], all[i % samples]) << samples << " samples, epoch " << number << ", place " << i;
      }
    }
  }
}

TEST(BatchOrder, EpochsAndSeedsDiffer) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const BatchOrder order{.samples = 50, .batch = 8, .shuffle = true, .seed = seed};
    for (std::uint64_t number = 0; number < 4; ++number) {
      orders.insert(epoch(order, number));
    }
  }
  EXPECT_EQ(orders.size(), 16U);
  for (std::vector<std::uint64_t> each : orders) {
    each.resize(50);
    EXPECT_NE(each, ascending(50));
  }
}

// A stored seed must mean the same batches on every machine and in every version. The expected values were
// computed separately in Python, from splitmix64 as published.
TEST(BatchOrder, IsTheSameEverywhere) {
  const BatchOrder order{.samples = 8, .batch = 8, .shuffle = true, .seed = 42};
  EXPECT_EQ(order.indices(0), (std::vector<std::uint64_t>{1, 2, 7, 4, 5, 3, 0, 6}));
  EXPECT_EQ(order.indices(1), (std::vector<std::uint64_t>{6, 4, 3, 2, 0, 5, 1, 7}));
  const BatchOrder uneven{.samples = 8, .batch = 5, .shuffle = true, .seed = 42};
  EXPECT_EQ(uneven.indices(0), (std::vector<std::uint64_t>{1, 2, 7, 4, 5}));
  EXPECT_EQ(uneven.indices(1), (std::vector<std::uint64_t>{3, 0, 6, 1, 2}));
  EXPECT_EQ(uneven.indices(2), (std::vector<std::uint64_t>{6, 4, 3, 2, 0}));
}

// Each of the 24 orders of four samples should occur in 1/24 of the epochs. Chi-squared with 23 degrees of
// freedom exceeds 50 for only one in a thousand generators.
TEST(BatchOrder, PrefersNoOrder) {
  constexpr std::uint64_t kEpochs = 24'000;
  const BatchOrder order{.samples = 4, .batch = 4, .shuffle = true, .seed = 7};
  std::array<std::uint64_t, 256> counts{};
  for (std::uint64_t number = 0; number < kEpochs; ++number) {
    std::size_t code = 0;
    for (const std::uint64_t index : order.indices(number)) {
      code = code * 4 + index;
    }
    ++counts.at(code);
  }
  EXPECT_EQ(std::ranges::count_if(counts, [](std::uint64_t count) { return count > 0; }), 24);
  double chi_squared = 0;
  for (const std::uint64_t count : counts) {
    const double off = static_cast<double>(count) - kEpochs / 24.0;
    chi_squared += count > 0 ? off * off / (kEpochs / 24.0) : 0;
  }
  EXPECT_LT(chi_squared, 50);
}

TEST(BatchCursor, GivesWhatTheOrderGivesFromAnywhere) {
  const BatchOrder order{.samples = 23, .batch = 4, .shuffle = true, .seed = 1};
  BatchCursor cursor(order);
  for (const std::uint64_t number : {0U, 1U, 5U, 6U, 7U, 3U, 30U, 0U, 12U}) {
    const auto indices = cursor.indices(number);
    EXPECT_EQ(std::vector<std::uint64_t>(indices.begin(), indices.end()), order.indices(number)) << number;
  }
}

// --- batches that ranks and micro-steps share ----------------------------------------------------

BatchOrder part_of(BatchOrder order, std::uint32_t parts, std::uint32_t first, std::uint32_t own) {
  order.parts = parts;
  order.first_part = first;
  order.own_parts = own;
  return order;
}

// Together, the parts are the batch in the order of ranks and then of micro-steps, however it is divided.
TEST(BatchOrder, PartsOfABatchTogetherAreTheBatch) {
  for (const bool shuffle : {true, false}) {
    const BatchOrder whole{.samples = 45, .batch = 12, .shuffle = shuffle, .seed = 3};
    for (const auto& [ranks, micro_steps] : {std::pair(1U, 4U), {4U, 1U}, {2U, 2U}, {3U, 2U}, {12U, 1U}}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(micro_steps) + " micro-steps");
      for (std::uint64_t batch = 0; batch < 3 * whole.batches_per_epoch(); ++batch) {
        std::vector<std::uint64_t> together;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const BatchOrder own = part_of(whole, ranks * micro_steps, rank * micro_steps, micro_steps);
          EXPECT_EQ(own.part(), 12 / (ranks * micro_steps));
          EXPECT_EQ(own.batches_per_epoch(), whole.batches_per_epoch());
          for (std::uint64_t part = batch * micro_steps; part < (batch + 1) * micro_steps; ++part) {
            EXPECT_EQ(own.epoch(part), whole.epoch(batch));
            const auto indices = own.indices(part);
            together.insert(together.end(), indices.begin(), indices.end());
          }
        }
        EXPECT_EQ(together, whole.indices(batch)) << batch;
      }
    }
  }
}

// With 7 samples in batches of 4, the second batch has 3: two for the first rank, one for the other.
TEST(BatchOrder, EvaluationsShortBatchIsSharedToo) {
  const BatchOrder whole{.samples = 7, .batch = 4};
  EXPECT_EQ(part_of(whole, 2, 0, 1).indices(1), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(part_of(whole, 2, 1, 1).indices(1), (std::vector<std::uint64_t>{6}));
  const BatchOrder shorter{.samples = 5, .batch = 4};
  EXPECT_EQ(part_of(shorter, 2, 0, 1).indices(1), (std::vector<std::uint64_t>{4}));
  EXPECT_EQ(part_of(shorter, 2, 1, 1).indices(1), (std::vector<std::uint64_t>{}))
      << "no sample for this rank";
}

TEST(BatchOrder, RefusesPartsThatCannotBe) {
  const BatchOrder whole{.samples = 7, .batch = 4};
  for (const BatchOrder& order :
       {part_of(whole, 0, 0, 1), part_of(whole, 3, 0, 1), part_of(whole, 2, 2, 1), part_of(whole, 2, 0, 3),
        part_of(whole, 4, 2, 3), part_of(whole, 2, 0, 0)}) {
    EXPECT_THROW(order.indices(0), InvalidArgument)
        << order.parts << ' ' << order.first_part << ' ' << order.own_parts;
  }
}

TEST(BatchOrder, RefusesWhatCannotBe) {
  EXPECT_THROW((BatchOrder{.samples = 0, .batch = 4}.batches_per_epoch()), InvalidArgument);
  EXPECT_THROW((BatchOrder{.samples = 4, .batch = 0}.indices(0)), InvalidArgument);
  EXPECT_THROW((BatchOrder{.samples = 4, .batch = -1}.indices(0)), InvalidArgument);
  EXPECT_THROW((BatchOrder{.samples = 4, .batch = -1, .shuffle = true}.indices(0)), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::batch_order_test
