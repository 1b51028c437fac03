#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/data/samples.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"

namespace vdnn::synthetic_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::problem;
using testing::read_sample;
using testing::Sample;

DatasetOptions options(const Dims& dims, std::int64_t classes, std::uint64_t seed) {
  return {.text = "synthetic", .sample_dims = dims, .classes = classes, .seed = seed};
}

// Label maps in the space of the samples.
DatasetOptions map_options(const Dims& dims, std::int64_t classes, std::uint64_t seed) {
  DatasetOptions result = options(dims, classes, seed);
  result.target_dims = Dims(dims.begin() + 1, dims.end());
  return result;
}

TEST(Synthetic, HasTheShapeThatIsAskedFor) {
  for (const Dims& dims : {Dims{3, 16, 20}, Dims{2, 3, 5, 7}, Dims{1, 1, 1}, Dims{12}}) {
    const DatasetSplits splits = open_dataset(options(dims, 7, 1));
    EXPECT_EQ(splits.test, nullptr);
    EXPECT_EQ(splits.training->size(), 4096U);
    EXPECT_EQ(splits.training->sample_dims(), dims);
    EXPECT_EQ(splits.training->target_dims(), Dims{});
    EXPECT_EQ(splits.training->classes(), 7);
    const Sample last = read_sample(*splits.training, 4095);
    EXPECT_TRUE(std::ranges::all_of(last.image, [](float x) { return x >= -2 && x < 2; }));
    EXPECT_THROW(read_sample(*splits.training, 4096), InvalidArgument);
  }
}

TEST(Synthetic, IsAFunctionOfSeedAndIndex) {
  const Dims dims{3, 8, 8};
  const auto one = open_dataset(options(dims, 5, 1)).training;
  const auto same = open_dataset(options(dims, 5, 1)).training;
  const auto other = open_dataset(options(dims, 5, 2)).training;
  const Sample late = read_sample(*one, 77);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(read_sample(*one, i), read_sample(*same, i)) << i;
    EXPECT_NE(read_sample(*one, i).image, read_sample(*other, i).image) << i;
    EXPECT_NE(read_sample(*one, i).image, read_sample(*one, i + 1).image) << i;
  }
  EXPECT_EQ(read_sample(*one, 77), late);
}

TEST(Synthetic, EveryClassComesUpEquallyOften) {
  const auto data = open_dataset(options({1, 2, 2}, 8, 1)).training;
  std::vector<int> counts(8);
  for (std::uint64_t i = 0; i < data->size(); ++i) {
    ++counts.at(static_cast<std::size_t>(read_sample(*data, i).targets[0]));
  }
  EXPECT_THAT(counts, Each(512));
}

// The mean image of each class over the first half of the samples classifies the second half, so training can
// learn.
TEST(Synthetic, CanBeLearned) {
  const auto data = open_dataset(options({3, 16, 16}, 10, 3)).training;
  const std::size_t elements = 768;
  std::vector<std::vector<double>> means(10, std::vector<double>(elements));
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Sample sample = read_sample(*data, i);
    for (std::size_t j = 0; j < elements; ++j) {
      means[static_cast<std::size_t>(sample.targets[0])][j] += sample.image[j] / 100;
    }
  }
  int right = 0;
  for (std::uint64_t i = 1000; i < 1500; ++i) {
    const Sample sample = read_sample(*data, i);
    const auto distance = [&sample](const std::vector<double>& mean) {
      double sum = 0;
      for (std::size_t j = 0; j < mean.size(); ++j) {
        sum += (sample.image[j] - mean[j]) * (sample.image[j] - mean[j]);
      }
      return sum;
    };
    const auto nearest = std::ranges::min_element(means, {}, distance);
    right += nearest - means.begin() == sample.targets[0] ? 1 : 0;
  }
  EXPECT_GT(right, 475);
}

TEST(Synthetic, RefusesWhatCannotBe) {
  EXPECT_THROW(open_dataset(options({}, 10, 0)), InvalidArgument);
  EXPECT_THROW(open_dataset(options({3, 0, 4}, 10, 0)), InvalidArgument);
  EXPECT_THROW(open_dataset(options({3, 4, 4}, 0, 0)), InvalidArgument);
  EXPECT_THROW(open_dataset(options({3, 4, 4}, std::int64_t{1} << 31, 0)), InvalidArgument);
}

// A training run with a published seed must be the same in every version. The digests are from the version in
// which a sample had one class only.
TEST(Synthetic, IsTheSameInEveryVersion) {
  EXPECT_EQ(testing::sha256_of_samples(*open_dataset(options({3, 16, 20}, 7, 5)).training, 50),
            "b2916428a6a1554f43402db870a378cd27dabf36dd50911e76640c2bfc5da5cb");
  EXPECT_EQ(testing::sha256_of_samples(*open_dataset(options({2, 3, 5, 7}, 4, 1)).training, 50),
            "363f9177814f684b6e8a460f7be65475bc3feef59d8ba0ddfc63d9e5e689cf57");
}

// --- label maps --------------------------------------------------------------------------------------------

TEST(SyntheticLabelMaps, LieOverTheSameImages) {
  for (const Dims& dims : {Dims{3, 16, 20}, Dims{2, 3, 5, 7}, Dims{1, 12}}) {
    const auto one_class = open_dataset(options(dims, 5, 1)).training;
    const auto maps = open_dataset(map_options(dims, 5, 1)).training;
    EXPECT_EQ(maps->target_dims(), Dims(dims.begin() + 1, dims.end()));
    for (std::uint64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(read_sample(*maps, i).image, read_sample(*one_class, i).image) << i;
      EXPECT_EQ(read_sample(*maps, i).targets, read_sample(*maps, i + 5).targets)
          << "both have the same class";
      EXPECT_NE(read_sample(*maps, i).targets, read_sample(*maps, i + 1).targets) << i;
    }
  }
}

TEST(SyntheticLabelMaps, HaveEveryClass) {
  const auto data = open_dataset(map_options({1, 8, 8, 8}, 6, 1)).training;
  std::set<std::int32_t> labels;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Sample sample = read_sample(*data, i);
    labels.insert(sample.targets.begin(), sample.targets.end());
  }
  EXPECT_EQ(labels, (std::set<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

// A 3x3 convolution can distinguish two labels nearly everywhere. The mean of the first channel is the
// label's pattern with a little noise; at a cell's border it is a mix of two patterns.
TEST(SyntheticLabelMaps, CanBeLearned) {
  constexpr std::int64_t kExtent = 32;
  const auto data = open_dataset(map_options({2, kExtent, kExtent}, 2, 3)).training;
  std::int64_t right = 0;
  std::int64_t places = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Sample sample = read_sample(*data, i);
    for (std::int64_t y = 1; y < kExtent - 1; ++y) {
      for (std::int64_t x = 1; x < kExtent - 1; ++x) {
        float sum = 0;
        for (std::int64_t place = 0; place < 9; ++place) {
          sum +=
              sample.image[static_cast<std::size_t>(((y + place / 3 - 1) * kExtent + x + place % 3 - 1) * 2)];
        }
        right += (sum >= 0 ? 1 : 0) == sample.targets[static_cast<std::size_t>(y * kExtent + x)] ? 1 : 0;
        ++places;
      }
    }
  }
  EXPECT_GT(static_cast<double>(right) / static_cast<double>(places), 0.8);
}

TEST(SyntheticLabelMaps, AreOfTheSamplesSpace) {
  DatasetOptions other = map_options({3, 16, 16}, 5, 1);
  other.target_dims = {16, 8};
  EXPECT_THAT(problem<InvalidArgument>([&] { open_dataset(other); }),
              AllOf(HasSubstr("3x16x16"), HasSubstr("label map of 16x16"), HasSubstr("label map of 16x8")));
}

}  // namespace
}  // namespace vdnn::synthetic_test
