#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/samples.h"
#include "tests/temporary_directory.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"

namespace vdnn::cifar10_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::prefix;
using testing::read_sample;
using testing::Sample;
using testing::write_file;

constexpr std::size_t kRecordBytes = 3073;
const Dims kShape{3, 32, 32};

// A directory with a small, sound data set: training batches of 1, 2, 3, 4 and 5 records, and a test batch of
// two records. Record i of file f has the label (f + i) % 10, and byte j of its pixels is f + 2 i + j.
class Cifar10Test : public testing::TemporaryDirectory {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    write_files(directory_);
  }

  static void write_files(const fs::path& directory) {
    for (std::size_t file = 1; file <= 5; ++file) {
      write_file(directory / ("data_batch_" + std::to_string(file) + ".bin"), records(file, file));
    }
    write_file(directory / "test_batch.bin", records(6, 2));
  }
  static Bytes records(std::size_t file, std::size_t count) {
    Bytes bytes;
    for (std::size_t i = 0; i < count; ++i) {
      bytes.push_back(static_cast<std::uint8_t>((file + i) % 10));
      for (std::size_t j = 0; j < kRecordBytes - 1; ++j) {
        bytes.push_back(static_cast<std::uint8_t>(file + 2 * i + j));
      }
    }
    return bytes;
  }
  fs::path batch(int number) const { return directory_ / ("data_batch_" + std::to_string(number) + ".bin"); }

  DatasetOptions options() const {
    return {.text = "cifar10:" + directory_.string(), .sample_dims = kShape, .classes = 10};
  }
  // The text of the DataError that opening throws.
  std::string problem() const {
    return testing::problem<DataError>([this] { open_dataset(options()); });
  }
  std::string refusal(const DatasetOptions& wrong) const {
    return testing::problem<InvalidArgument>([&] { open_dataset(wrong); });
  }
};

void expect_record(const Sample& sample, std::size_t file, std::size_t record) {
  EXPECT_THAT(sample.targets, ElementsAre((file + record) % 10));
  const double means[]{0.4914, 0.4822, 0.4465};
  const double deviations[]{0.2470, 0.2435, 0.2616};
  for (std::size_t i = 0; i < 1024; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      const double brightness = static_cast<double>((file + 2 * record + c * 1024 + i) % 256) / 255;
      ASSERT_NEAR(sample.image[i * 3 + c], (brightness - means[c]) / deviations[c], 1e-5)
          << "pixel " << i << ", channel " << c;
    }
  }
}

TEST_F(Cifar10Test, ReadsBothSplits) {
  const DatasetSplits splits = open_dataset(options());
  EXPECT_EQ(splits.training->size(), 15U);
  EXPECT_EQ(splits.test->size(), 2U);
  EXPECT_EQ(splits.training->sample_dims(), kShape);
  EXPECT_EQ(splits.training->target_dims(), Dims{});
  EXPECT_EQ(splits.training->classes(), 10);
  std::uint64_t index = 0;
  for (std::size_t file = 1; file <= 5; ++file) {
    for (std::size_t record = 0; record < file; ++record, ++index) {
      expect_record(read_sample(*splits.training, index), file, record);
    }
  }
  expect_record(read_sample(*splits.test, 1), 6, 1);
  EXPECT_THROW(read_sample(*splits.training, 15), InvalidArgument);
}

TEST_F(Cifar10Test, MayBeInTheArchivesFolder) {
  fs::remove_all(directory_);
  fs::create_directories(directory_ / "cifar-10-batches-bin");
  write_files(directory_ / "cifar-10-batches-bin");
  EXPECT_EQ(open_dataset(options()).training->size(), 15U);
}

TEST_F(Cifar10Test, AMissingDirectorySaysWhatBelongsThere) {
  fs::remove_all(directory_);
  EXPECT_THAT(problem(), AllOf(HasSubstr(directory_.string()), HasSubstr("binary version of CIFAR-10"),
                               HasSubstr("test_batch.bin"), HasSubstr("found nothing")));
}

TEST_F(Cifar10Test, AMissingFileIsNamed) {
  for (const fs::path& path : {batch(1), batch(5), directory_ / "test_batch.bin"}) {
    fs::remove(path);
    EXPECT_THAT(problem(), AllOf(HasSubstr(path.string()), HasSubstr("No such file"))) << path;
    fs::create_directory(path);
    EXPECT_THAT(problem(), AllOf(HasSubstr(path.string()), HasSubstr("found a directory"))) << path;
    fs::remove(path);
    write_file(path, records(1, 1));
  }
  open_dataset(options());
}

TEST_F(Cifar10Test, PartsOfRecordsAreFound) {
  const Bytes sound = records(3, 3);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, kRecordBytes - 1, kRecordBytes + 1, 3 * kRecordBytes - 1}) {
    write_file(batch(3), prefix(sound, size));
    EXPECT_THAT(problem(), AllOf(HasSubstr(batch(3).string()), HasSubstr("positive multiple of 3073 bytes"),
                                 HasSubstr("found " + std::to_string(size))));
  }
  Bytes longer = sound;
  longer.push_back(0);
  write_file(batch(3), longer);
  EXPECT_THAT(problem(), HasSubstr("found " + std::to_string(longer.size())));
}

TEST_F(Cifar10Test, LabelsAboveNineAreFound) {
  Bytes damaged = records(4, 4);
  damaged[2 * kRecordBytes] = 10;
  write_file(batch(4), damaged);
  EXPECT_THAT(problem(), AllOf(HasSubstr(batch(4).string()), HasSubstr("labels from 0 to 9"),
                               HasSubstr("found 10 in record 2")));
}

TEST_F(Cifar10Test, RefusesAnotherShapeNamingBoth) {
  DatasetOptions wrong = options();
  wrong.classes = 100;
  EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("3x32x32 in 10"), HasSubstr("3x32x32 in 100")));
  wrong = options();
  wrong.sample_dims = {1, 32, 32};
  EXPECT_THAT(refusal(wrong), HasSubstr("expects 1x32x32 in 10"));
  wrong = options();
  wrong.target_dims = {32, 32};
  EXPECT_THAT(refusal(wrong),
              AllOf(HasSubstr("cifar10 has one class per sample"), HasSubstr("label map of 32x32")));
}

TEST_F(Cifar10Test, OnlyTrainingIsAugmented) {
  DatasetOptions augmented = options();
  augmented.augment = true;
  const DatasetSplits plain = open_dataset(options());
  const DatasetSplits splits = open_dataset(augmented);
  EXPECT_EQ(testing::read_all(*splits.test), testing::read_all(*plain.test));
  EXPECT_NE(testing::read_all(*splits.training), testing::read_all(*plain.training));
}

}  // namespace
}  // namespace vdnn::cifar10_test
