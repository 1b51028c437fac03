#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/encoded_images.h"
#include "tests/data/samples.h"
#include "tests/temporary_directory.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"

namespace vdnn::image_folder_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::write_file;

const Dims kShape{3, 4, 6};

// An image of 6x4 in one colour.
Bytes png(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  testing::PngFile file{.width = 6, .height = 4, .palette = {}, .transparency = {}, .values = {}};
  for (int i = 0; i < 24; ++i) {
    file.values.insert(file.values.end(), {red, green, blue});
  }
  return encode(file);
}

Bytes grey_jpeg(std::uint8_t level) {
  return encode(testing::JpegFile{
      .width = 16, .height = 16, .colour = testing::JpegColour::kGrey, .pixels = Bytes(256, level)});
}

class ImageFolderTest : public testing::TemporaryDirectory {
 protected:
  void put(const std::string& name, const Bytes& bytes) const {
    fs::create_directories((directory_ / name).parent_path());
    write_file(directory_ / name, bytes);
  }
  // The red value tells the files of a sound data set apart.
  void put_red(const std::string& name, std::uint8_t red) const { put(name, png(red, 0, 0)); }

  void put_both_splits() const {
    put_red("train/cat/1.png", 1);
    put_red("train/dog/1.png", 2);
    put_red("test/cat/1.png", 3);
    put_red("test/dog/1.png", 4);
  }

  DatasetOptions options(std::int64_t classes = 2) const {
    return {.text = "images:" + directory_.string(), .sample_dims = kShape, .classes = classes};
  }
  std::string problem() const {
    return testing::problem<DataError>([this] { open_dataset(options()); });
  }
  static std::string refusal(const DatasetOptions& wrong) {
    return testing::problem<InvalidArgument>([&] { open_dataset(wrong); });
  }
};

// For each sample, the red value of its first pixel (0 to 255) and its class.
std::vector<std::pair<long, std::int32_t>> reds(const Dataset& data) {
  std::vector<std::pair<long, std::int32_t>> result;
  for (const testing::Sample& sample : testing::read_all(data)) {
    result.emplace_back(std::lround((static_cast<double>(sample.image[0]) * 0.229 + 0.485) * 255),
                        sample.targets.at(0));
  }
  return result;
}

TEST_F(ImageFolderTest, ReadsBothSplits) {
  put_both_splits();
  const DatasetSplits splits = open_dataset(options());
  EXPECT_EQ(splits.training->size(), 2U);
  EXPECT_EQ(splits.training->sample_dims(), kShape);
  EXPECT_EQ(splits.training->target_dims(), Dims{});
  EXPECT_EQ(splits.training->classes(), 2);
  EXPECT_THAT(reds(*splits.training), ElementsAre(std::pair(1, 0), std::pair(2, 1)));
  ASSERT_NE(splits.test, nullptr);
  EXPECT_THAT(reds(*splits.test), ElementsAre(std::pair(3, 0), std::pair(4, 1)));
  EXPECT_THROW(read_sample(*splits.training, 2), InvalidArgument);
}

TEST_F(ImageFolderTest, TheTestSplitMayBeCalledVal) {
  put_both_splits();
  fs::rename(directory_ / "test", directory_ / "val");
  EXPECT_THAT(reds(*open_dataset(options()).test), ElementsAre(std::pair(3, 0), std::pair(4, 1)));
  put_red("test/cat/1.png", 5);
  put_red("test/dog/1.png", 6);
  EXPECT_THAT(reds(*open_dataset(options()).test), ElementsAre(std::pair(5, 0), std::pair(6, 1)));
}

TEST_F(ImageFolderTest, ThereMayBeNoTestSplit) {
  put_red("train/a/1.png", 1);
  put_red("train/b/1.png", 2);
  EXPECT_EQ(open_dataset(options()).test, nullptr);
  fs::rename(directory_ / "train/a", directory_ / "a");
  fs::rename(directory_ / "train/b", directory_ / "b");
  fs::remove(directory_ / "train");
  const DatasetSplits splits = open_dataset(options());
  EXPECT_EQ(splits.test, nullptr);
  EXPECT_THAT(reds(*splits.training), ElementsAre(std::pair(1, 0), std::pair(2, 1)));
}

TEST_F(ImageFolderTest, ClassesAndFilesAreInTheOrderOfBytes) {
  put_red("train/b/1.png", 6);
  put_red("train/B/2.png", 3);
  put_red("train/B/10.png", 2);
  put_red("train/10/x.png", 1);
  put_red("train/\xc3\xa4/1.png", 7);
  put_red("train/B/a.png", 5);
  put_red("train/B/Z.png", 4);
  EXPECT_THAT(reds(*open_dataset(options(4)).training),
              ElementsAre(std::pair(1, 0), std::pair(2, 1), std::pair(3, 1), std::pair(4, 1), std::pair(5, 1),
                          std::pair(6, 2), std::pair(7, 3)));
}

TEST_F(ImageFolderTest, OnlyImagesCount) {
  put("a/photo.JPG", grey_jpeg(255));
  put("a/photo.Jpeg", grey_jpeg(0));
  put_red("a/scan.PNG", 9);
  for (const char* const name : {"a/notes.txt", "a/png", "a/photo.jpg.part", "a/.hidden.png", "a/jpg.gif",
                                 ".git/x.png", "a/deeper/1.png", "README.md", "cover.png"}) {
    put(name, {1, 2, 3});
  }
  fs::create_directory(directory_ / "a/folder.png");
  EXPECT_THAT(reds(*open_dataset(options(1)).training),
              ElementsAre(std::pair(255, 0), std::pair(0, 0), std::pair(9, 0)));
}

TEST_F(ImageFolderTest, NormalisesByChannel) {
  put("a/1.png", png(255, 51, 102));
  const auto colour = read_sample(*open_dataset(options(1)).training, 0);
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(colour.image[3 * i], (1 - 0.485) / 0.229, 1e-5);
    EXPECT_NEAR(colour.image[3 * i + 1], (0.2 - 0.456) / 0.224, 1e-5);
    EXPECT_NEAR(colour.image[3 * i + 2], (0.4 - 0.406) / 0.225, 1e-5);
  }
  DatasetOptions grey = options(1);
  grey.sample_dims = {1, 4, 6};
  const auto image = read_sample(*open_dataset(grey).training, 0).image;
  EXPECT_EQ(image.size(), 24U);
  // 0.299 * 255 + 0.587 * 51 + 0.114 * 102, rounded
  EXPECT_THAT(image, Each(::testing::FloatNear((118.0F / 255 - 0.449F) / 0.226F, 1e-5F)));
}

TEST_F(ImageFolderTest, AnyImageIsCroppedAndScaled) {
  // A black image of 12x4 with a white area of 6x4 in its middle.
  testing::PngFile file{.width = 12, .height = 4, .palette = {}, .transparency = {}, .values = {}};
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 12; ++x) {
      const std::uint16_t value = x >= 3 && x < 9 ? 255 : 0;
      file.values.insert(file.values.end(), {value, value, value});
    }
  }
  put("a/1.png", encode(file));
  put("a/2.jpg", grey_jpeg(255));
  EXPECT_THAT(reds(*open_dataset(options(1)).training), ElementsAre(std::pair(255, 0), std::pair(255, 0)));
}

TEST_F(ImageFolderTest, FilesAreOpenedWhenTheyAreRead) {
  put_both_splits();
  put("train/cat/2.jpg", {});
  const DatasetSplits splits = open_dataset(options());
  fs::remove(directory_ / "train/dog/1.png");
  fs::create_symlink("nowhere", directory_ / "train/dog/1.png");
  read_sample(*splits.training, 0);
  const auto damage = [&](std::uint64_t index) {
    return testing::problem<DataError>([&] { read_sample(*splits.training, index); });
  };
  EXPECT_THAT(damage(1), AllOf(HasSubstr("train/cat/2.jpg"), HasSubstr("found 0 bytes")));
  EXPECT_THAT(damage(2), AllOf(HasSubstr("train/dog/1.png"), HasSubstr("No such file")));
}

TEST_F(ImageFolderTest, ALinkToNothingIsNotPassedOver) {
  put_both_splits();
  fs::create_symlink("nowhere", directory_ / "train/cat/0.png");
  EXPECT_EQ(open_dataset(options()).training->size(), 3U);
}

TEST_F(ImageFolderTest, AMissingDirectoryIsNamed) {
  fs::remove_all(directory_);
  EXPECT_THAT(problem(), AllOf(HasSubstr(directory_.string()), HasSubstr("found nothing")));
}

TEST_F(ImageFolderTest, ADirectoryWithoutClassesIsNamed) {
  EXPECT_THAT(problem(),
              AllOf(HasSubstr(directory_.string()), HasSubstr("a folder of images for each class")));
  put("1.png", png(1, 2, 3));
  EXPECT_THAT(problem(), HasSubstr("a folder of images for each class"));
  fs::create_directory(directory_ / "train");
  EXPECT_THAT(problem(), HasSubstr((directory_ / "train").string()));
}

TEST_F(ImageFolderTest, AClassWithoutImagesIsNamed) {
  put_both_splits();
  put("test/dog/notes.txt", {1});
  fs::remove(directory_ / "test/dog/1.png");
  EXPECT_THAT(problem(), AllOf(HasSubstr((directory_ / "test/dog").string()), HasSubstr("expected images")));
}

TEST_F(ImageFolderTest, SplitsHaveTheSameClasses) {
  put_both_splits();
  put_red("test/bird/1.png", 5);
  EXPECT_THAT(problem(), AllOf(HasSubstr((directory_ / "train/bird").string()),
                               HasSubstr("'" + (directory_ / "test/bird").string()),
                               HasSubstr("found none; splits must have the same classes")));
  fs::remove_all(directory_ / "test/bird");
  fs::remove_all(directory_ / "test/cat");
  EXPECT_THAT(problem(),
              HasSubstr("'" + (directory_ / "test/cat").string() + "': expected a folder for the class"));
}

TEST_F(ImageFolderTest, TheNetworkHasTheSameClasses) {
  put_both_splits();
  EXPECT_THAT(refusal(options(10)), AllOf(HasSubstr(directory_.string()), HasSubstr("has 2 classes"),
                                          HasSubstr("expects 10"), HasSubstr("use model.classes = 2")));
}

TEST_F(ImageFolderTest, ImagesAreGreyOrInColour) {
  put_both_splits();
  for (const Dims& dims : {Dims{4, 4, 6}, Dims{2, 4, 6}, Dims{3, 4}, Dims{3, 2, 4, 6}, Dims{}}) {
    DatasetOptions wrong = options();
    wrong.sample_dims = dims;
    EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("3xHxW or 1xHxW"), HasSubstr("expects " + to_string(dims))));
  }
  DatasetOptions wrong = options();
  wrong.sample_dims = {3, 0, 6};
  EXPECT_THAT(refusal(wrong), HasSubstr("not positive"));
}

TEST_F(ImageFolderTest, HasNoLabelMaps) {
  put_both_splits();
  DatasetOptions wrong = options();
  wrong.target_dims = {4, 6};
  EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("one class per sample"), HasSubstr("label map of 4x6")));
}

}  // namespace
}  // namespace vdnn::image_folder_test
