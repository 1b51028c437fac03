// Batch normalisation over the batches of several ranks, op by op. Each rank is a harness, and the test
// itself sums over the ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/ops/layer_operands.h"
#include "src/ops/standard_recipes.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_normalization.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing::synchronized_batch_normalization_test {
namespace {

using reference::Array;
namespace position = ops::synchronized;

constexpr std::uint32_t kRanks = 3;
constexpr BatchNormalizationSpec kSpec{.epsilon = 1e-3F, .momentum = 0.25F, .ranks = kRanks};

using ops::normalization::kDScale;
using ops::normalization::kDShift;
using ops::normalization::kGradientMeans;
using ops::normalization::kMean;
using ops::normalization::kOwnMean;
using ops::normalization::kOwnVariance;
using ops::normalization::kRunningMean;
using ops::normalization::kRunningVariance;
using ops::normalization::kScale;
using ops::normalization::kShift;
using ops::normalization::kVariance;

Array rounded(Array array) {
  for (double& value : array.data) {
    value = static_cast<double>(static_cast<float>(value));
  }
  return array;
}

// The samples of one rank, with dims `part`.
Array samples_of(const Array& whole, std::size_t rank, const Dims& part) {
  Array result(part);
  const auto size = static_cast<std::ptrdiff_t>(result.data.size());
  const auto begin = whole.data.begin() + static_cast<std::ptrdiff_t>(rank) * size;
  std::copy(begin, begin + size, result.data.begin());
  return result;
}

// The tolerance is a fraction of the largest expected element.
void expect_close(const Array& got, const Array& want, const char* what) {
  constexpr double kTolerance = 4e-6;
  double largest = 0;
  for (const double value : want.data) {
    largest = std::max(largest, std::abs(value));
  }
  ASSERT_EQ(got.data.size(), want.data.size()) << what;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    EXPECT_NEAR(got.data[i], want.data[i], kTolerance * largest) << what << ' ' << i;
  }
}

struct Case {
  Dims shape;  // of one rank's batch
  TestedLibrary library;
};

class SynchronizedBatchNormalizationTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(
          std::make_unique<OpHarness>(*library_, same_shape_case("batch_normalization", kSpec, part_)));
    }
  }

  // Runs the op on every rank. The sum over the ranks' values of `summed`, a left fold in single precision,
  // then replaces the value on every rank.
  void run(OpId op, const Operand* summed = nullptr) {
    Array sum;
    for (const auto& rank : ranks_) {
      rank->run(op);
      if (summed == nullptr) {
        continue;
      }
      const Array share = rank->get(*summed);
      if (sum.data.empty()) {
        sum = share;
      } else {
        std::ranges::transform(sum.data, share.data, sum.data.begin(), std::plus<>());
        sum = rounded(sum);
      }
    }
    for (const auto& rank : ranks_) {
      if (summed != nullptr) {
        rank->set(*summed, sum);
      }
    }
  }
  void set_all(const Array& x, const Array& dy) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank]->set(kX, samples_of(x, rank, part_));
      ranks_[rank]->set(kDY, samples_of(dy, rank, part_));
      ranks_[rank]->set(kScale, scale_);
      ranks_[rank]->set(kShift, shift_);
      ranks_[rank]->set(kRunningMean, running_);
      ranks_[rank]->set(kRunningVariance, running_);
    }
  }
  void run_forward() {
    run(position::kStatistics, &kMean);
    run(position::kVariance, &kVariance);
    run(position::kNormalise);
    run(position::kFollow);
  }
  void run_backward() {
    constexpr OpId kForwardOps = 4;
    run(kForwardOps + position::kSums, &kGradientMeans);
    run(kForwardOps + position::kGradient);
  }
  Array together(const Operand& operand) {
    Array whole(whole_);
    whole.data.clear();
    for (const auto& rank : ranks_) {
      const Array part = rank->get(operand);
      whole.data.insert(whole.data.end(), part.data.begin(), part.data.end());
    }
    return whole;
  }
  Array sum(const Operand& operand) {
    Array all = ranks_[0]->get(operand);
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      const Array more = ranks_[rank]->get(operand);
      std::ranges::transform(all.data, more.data, all.data.begin(), std::plus<>());
    }
    return all;
  }
  static Dims whole_dims(Dims part) {
    part[0] *= kRanks;
    return part;
  }

  const Dims part_ = GetParam().shape;
  const Dims whole_ = whole_dims(part_);
  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
  std::vector<std::unique_ptr<OpHarness>> ranks_;
  const Array scale_ = random_array({part_[1]}, 902);
  const Array shift_ = random_array({part_[1]}, 903);
  const Array running_ = random_array({part_[1]}, 904);
};

TEST_P(SynchronizedBatchNormalizationTest, RanksTogetherAreOneRankWithTheWholeBatch) {
  const Array x = random_array(whole_, 900);
  const Array dy = random_array(whole_, 901);
  set_all(x, dy);
  run_forward();
  run_backward();

  const reference::Sets sets = reference::channel_sets(whole_);
  const reference::Statistics exact = reference::statistics(x, sets, 0);
  const auto normalizer =
      reference::normalizer(exact.mean.value, exact.variance.value, static_cast<double>(kSpec.epsilon));
  const auto gradients = reference::normalization_backward(x, sets, normalizer, dy, scale_, 0);
  const auto elements = static_cast<double>(sets.elements());
  Array unbiased = exact.variance.value;
  for (double& value : unbiased.data) {
    value *= elements / (elements - 1);
  }
  const auto momentum = static_cast<double>(kSpec.momentum);
  for (const auto& rank : ranks_) {
    expect_close(rank->get(kVariance), exact.variance.value, "variance");
    expect_close(rank->get(kRunningMean), reference::follow(running_, exact.mean.value, momentum).value,
                 "running mean");
    expect_close(rank->get(kRunningVariance), reference::follow(running_, unbiased, momentum).value,
                 "running variance");
  }
  expect_close(together(kY), reference::normalization(x, sets, normalizer, {scale_, shift_}, 0).value, "y");
  expect_close(together(kDX), gradients.x.value, "dx");
  expect_close(sum(kDScale), gradients.scale.value, "scale");
  expect_close(sum(kDShift), gradients.shift.value, "shift");
}

// The mean is thousands of standard deviations large. In single precision, mean square minus squared mean
// would have no correct digit.
TEST_P(SynchronizedBatchNormalizationTest, VarianceIsRightBesideALargeMean) {
  Array x = random_array(whole_, 905);
  for (double& value : x.data) {
    value += 8192;
  }
  x = rounded(x);
  set_all(x, random_array(whole_, 906));
  run_forward();
  const reference::Statistics exact = reference::statistics(x, reference::channel_sets(whole_), 0);
  for (const auto& rank : ranks_) {
    const Array got = rank->get(kVariance);
    for (std::size_t c = 0; c < got.data.size(); ++c) {
      // Means are rounded to 2^-10, and those of the ranks differ by less than one.
      EXPECT_NEAR(got.data[c], exact.variance.value.data[c], 0x1p-8) << c;
    }
  }
}

TEST_P(SynchronizedBatchNormalizationTest, InPlaceEqualsOutOfPlace) {
  OpHarness& op = *ranks_[0];
  expect_in_place_equals_apart(op, [&] {
    set_all(random_array(whole_, 900), random_array(whole_, 901));
    std::uint64_t seed = 910;
    for (const Operand& saved : {kMean, kVariance, kOwnMean, kOwnVariance}) {
      Array statistic = random_array({part_[1]}, seed++);
      for (double& value : statistic.data) {
        value = std::abs(value);
      }
      op.set(saved, statistic);
    }
    op.set(kGradientMeans, random_array({2, part_[1]}, 914));
  });
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Dims& shape : {Dims{2, 3, 5, 7}, Dims{2, 16, 5, 7}, Dims{1, 20, 3, 5}, Dims{2, 5, 3, 4, 5},
                            Dims{3, 4, 9}, Dims{6, 10}, Dims{2, 64, 28, 28}}) {
    for (const TestedLibrary& library : tested_libraries({1, 2})) {
      result.push_back({shape, library});
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Cases, SynchronizedBatchNormalizationTest, ::testing::ValuesIn(cases()),
                         [](const auto& test) {
                           return to_string(test.param.shape) + "_" + test.param.library.name();
                         });

}  // namespace
}  // namespace vdnn::testing::synchronized_batch_normalization_test
