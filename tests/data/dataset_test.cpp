#include "vdnn/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/data/augmentation.h"
#include "tests/data/samples.h"
#include "vdnn/error.h"

namespace vdnn::dataset_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem(const std::string& text) {
  return testing::problem<InvalidArgument>([&text] {
    open_dataset({.text = text, .sample_dims = {1, 28, 28}, .classes = 10});
  });
}

TEST(OpenDataset, SaysWhatThereIs) {
  for (const char* const text : {"", "mnist", "fashion", "synthetic:dir", "Synthetic", "cifar10", "images"}) {
    EXPECT_THAT(problem(text), AllOf(HasSubstr(std::string("'") + text + "' is not a data set"),
                                     HasSubstr("fashion-mnist[:DIR], cifar10:DIR, images:DIR or synthetic")));
  }
  for (const char* const text : {"fashion-mnist:", "cifar10:", "images:"}) {
    EXPECT_THAT(problem(text),
                HasSubstr(std::string("'") + text + "': expected a directory after the colon"));
  }
}

TEST(OpenDataset, AugmentsOnRequest) {
  DatasetOptions options{.text = "synthetic", .sample_dims = {3, 16, 16}, .classes = 10, .seed = 3};
  const DatasetSplits plain = open_dataset(options);
  options.augment = true;
  options.crop_padding = 2;
  const DatasetSplits splits = open_dataset(options);
  const auto expected = augmented(
      std::move(
          open_dataset({.text = "synthetic", .sample_dims = {3, 16, 16}, .classes = 10, .seed = 3}).training),
      {.seed = 3, .crop_padding = 2});
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(testing::read_sample(*splits.training, i, 4), testing::read_sample(*expected, i, 4));
    EXPECT_NE(testing::read_sample(*splits.training, i, 4), testing::read_sample(*plain.training, i, 4));
  }
}

}  // namespace
}  // namespace vdnn::dataset_test
