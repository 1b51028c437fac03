#include "src/data/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/data/samples.h"
#include "vdnn/error.h"

namespace vdnn::augmentation_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;

constexpr std::int64_t kChannels = 2;
constexpr std::int64_t kHeight = 7;
constexpr std::int64_t kWidth = 10;
constexpr std::int64_t kPadding = 3;

// All values of all samples differ and none is 0, so an augmented image shows where its pixels come from.
class Places : public Dataset {
 public:
  explicit Places(Dims dims, Dims map = {}) : dims_(std::move(dims)), map_(std::move(map)) {}
  std::uint64_t size() const override { return 1000; }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return map_; }
  std::int64_t classes() const override { return std::int64_t{1} << 30; }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    for (std::size_t i = 0; i < image.size(); ++i) {
      image[i] = static_cast<float>(key.index * image.size() + i + 1);
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = static_cast<std::int32_t>(key.index * targets.size() + i);
    }
  }

 private:
  Dims dims_;
  Dims map_;
};

struct View {
  std::int64_t down;
  std::int64_t right;
  bool mirrored;
  friend bool operator<(const View& a, const View& b) {
    return std::tie(a.down, a.right, a.mirrored) < std::tie(b.down, b.right, b.mirrored);
  }
};

std::unique_ptr<Dataset> places(std::uint64_t seed, std::int64_t padding = kPadding, Dims map = {}) {
  return augmented(std::make_unique<Places>(Dims{kChannels, kHeight, kWidth}, std::move(map)),
                   {.seed = seed, .crop_padding = padding});
}

// Computes the view pixel by pixel by its definition: pad, crop, mirror.
template <typename T>
std::vector<T> shown(const std::vector<T>& image, const View& view, std::int64_t channels, T padding) {
  std::vector<T> result;
  for (std::int64_t y = 0; y < kHeight; ++y) {
    for (std::int64_t x = 0; x < kWidth; ++x) {
      const std::int64_t from_y = y + view.down;
      const std::int64_t from_x = (view.mirrored ? kWidth - 1 - x : x) + view.right;
      const bool inside = from_y >= 0 && from_y < kHeight && from_x >= 0 && from_x < kWidth;
      for (std::int64_t c = 0; c < channels; ++c) {
        result.push_back(inside ? image[static_cast<std::size_t>((from_y * kWidth + from_x) * channels + c)]
                                : padding);
      }
    }
  }
  return result;
}

std::vector<View> all_views(std::int64_t padding) {
  std::vector<View> views;
  for (std::int64_t down = -padding; down <= padding; ++down) {
    for (std::int64_t right = -padding; right <= padding; ++right) {
      views.push_back({.down = down, .right = right, .mirrored = false});
      views.push_back({.down = down, .right = right, .mirrored = true});
    }
  }
  return views;
}

// Counts how often each view occurs. An image that is no view of its own sample fails the test.
std::map<View, int> count_views(const Dataset& data, std::uint64_t epochs) {
  const Places plain({kChannels, kHeight, kWidth});
  const std::vector<View> views = all_views(kPadding);
  std::map<View, int> counts;
  for (std::uint64_t index = 0; index < 200; ++index) {
    const Sample original = read_sample(plain, index);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const Sample sample = read_sample(data, index, epoch);
      EXPECT_EQ(sample.targets, original.targets);
      const auto found = std::ranges::find_if(views, [&](const View& view) {
        return sample.image == shown(original.image, view, kChannels, 0.0F);
      });
      if (found == views.end()) {
        ADD_FAILURE() << "sample " << index << " of epoch " << epoch << " is no view of itself";
        return counts;
      }
      ++counts[*found];
    }
  }
  return counts;
}

TEST(Augmentation, ShowsEveryViewAndNothingElse) {
  const std::map<View, int> counts = count_views(*places(5), 10);
  EXPECT_EQ(counts.size(), all_views(kPadding).size());
  int mirrored = 0;
  for (const auto& [view, count] : counts) {
    mirrored += view.mirrored ? count : 0;
    // 2000 images over 98 views; the limit is five standard deviations.
    EXPECT_LT(count, 43) << view.down << ", " << view.right;
  }
  EXPECT_NEAR(mirrored, 1000, 112);
}

TEST(Augmentation, WithoutPaddingOnlyMirrors) {
  const auto data = places(1, 0);
  const Places plain({kChannels, kHeight, kWidth});
  int mirrored = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    const Sample original = read_sample(plain, index);
    const Sample sample = read_sample(*data, index);
    if (sample != original) {
      EXPECT_EQ(sample.image,
                shown(original.image, {.down = 0, .right = 0, .mirrored = true}, kChannels, 0.0F));
      ++mirrored;
    }
  }
  EXPECT_NEAR(mirrored, 100, 36);
}

TEST(Augmentation, IsAFunctionOfSeedEpochAndIndex) {
  const auto one = places(1);
  const auto same = places(1);
  const Sample late = read_sample(*one, 99, 3);
  int differs_by_seed = 0;
  int differs_by_epoch = 0;
  for (std::uint64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(read_sample(*one, index, 2), read_sample(*same, index, 2)) << index;
    differs_by_seed += read_sample(*one, index, 2) != read_sample(*places(2), index, 2) ? 1 : 0;
    differs_by_epoch += read_sample(*one, index, 2) != read_sample(*one, index, 3) ? 1 : 0;
  }
  EXPECT_GT(differs_by_seed, 90);
  EXPECT_GT(differs_by_epoch, 90);
  EXPECT_EQ(read_sample(*one, 99, 3), late) << "independent of earlier reads";
}

// A stored seed must mean the same pixels on every machine and in every version. The expected values were
// computed separately in Python, from splitmix64 as published.
TEST(Augmentation, IsTheSameEverywhere) {
  const Places plain({kChannels, kHeight, kWidth});
  const auto view = [&](std::uint64_t seed, std::uint64_t epoch, std::uint64_t index) {
    const auto data = places(seed, 4);
    const Sample sample = read_sample(*data, index, epoch);
    const Sample original = read_sample(plain, index);
    for (const View& candidate : all_views(4)) {
      if (sample.image == shown(original.image, candidate, kChannels, 0.0F)) {
        return std::tuple(candidate.down, candidate.right, candidate.mirrored);
      }
    }
    return std::tuple(std::int64_t{99}, std::int64_t{99}, false);
  };
  EXPECT_EQ(view(1, 0, 0), std::tuple(0, -2, true));
  EXPECT_EQ(view(1, 0, 1), std::tuple(-2, 0, true));
  EXPECT_EQ(view(1, 1, 0), std::tuple(-4, -1, false));
  EXPECT_EQ(view(42, 3, 77), std::tuple(2, 1, true));
}

TEST(Augmentation, LabelMapsMoveAlong) {
  const auto data = places(1, kPadding, {kHeight, kWidth});
  const Places plain({kChannels, kHeight, kWidth}, {kHeight, kWidth});
  for (std::uint64_t index = 0; index < 50; ++index) {
    const Sample original = read_sample(plain, index);
    const Sample sample = read_sample(*data, index);
    const std::vector<View> views = all_views(kPadding);
    const auto view = std::ranges::find_if(views, [&](const View& candidate) {
      return sample.image == shown(original.image, candidate, kChannels, 0.0F);
    });
    ASSERT_NE(view, views.end()) << index;
    EXPECT_EQ(sample.targets, shown(original.targets, *view, 1, std::int32_t{-1})) << index;
  }
}

TEST(Augmentation, RefusesWhatCannotBe) {
  const auto problem = [](const Dims& dims, std::int64_t padding, const Dims& map = {}) {
    return testing::problem<InvalidArgument>(
        [&] { augmented(std::make_unique<Places>(dims, map), {.crop_padding = padding}); });
  };
  EXPECT_THAT(problem({1, 4, 4, 4}, 1), AllOf(HasSubstr("two dimensions"), HasSubstr("1x4x4x4")));
  EXPECT_THAT(problem({12}, 1), HasSubstr("two dimensions"));
  EXPECT_THAT(problem({1, 8, 8}, -1), HasSubstr("crop_padding = -1"));
  EXPECT_THAT(problem({1, 4, 8}, 4), AllOf(HasSubstr("crop_padding = 4"), HasSubstr("1x4x8")));
  // Regression: the message named the padding, which is there by default, but not the option that sets it.
  EXPECT_THAT(problem({1, 8, 4}, 4), AllOf(HasSubstr("crop_padding = 4"), HasSubstr("height and width")));
  EXPECT_THAT(problem({1, 8, 8}, 4, {4, 4}), AllOf(HasSubstr("8x8"), HasSubstr("found 4x4")));
  EXPECT_EQ(problem({1, 4, 8}, 3), "nothing was thrown");
}

}  // namespace
}  // namespace vdnn::augmentation_test
