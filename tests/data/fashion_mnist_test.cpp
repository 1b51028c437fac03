#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "tests/data/samples.h"
#include "tests/temporary_directory.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"

namespace vdnn::fashion_mnist_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::prefix;
using testing::read_all;
using testing::read_file;
using testing::read_sample;
using testing::Sample;
using testing::write_file;

Bytes idx_header(std::uint8_t type, const std::vector<std::uint32_t>& dims) {
  Bytes bytes{0, 0, type, static_cast<std::uint8_t>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(dim >> shift));
    }
  }
  return bytes;
}

void write_gzip(const fs::path& path, const Bytes& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
}

constexpr std::size_t kPixels = 784;  // 28x28
const Dims kShape{1, 28, 28};

// A directory with a small, sound data set: three training samples, two test samples. Pixel j of sample i is
// (i + j) % 256, and its label is 9 - i.
class FashionMnistTest : public testing::TemporaryDirectory {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    write_split("train", 3);
    write_split("t10k", 2);
  }

  void write_split(const std::string& split, std::uint32_t samples) const {
    write_gzip(images(split), image_bytes(samples));
    write_gzip(labels(split), label_bytes(samples));
  }
  static Bytes image_bytes(std::uint32_t samples) {
    Bytes bytes = idx_header(8, {samples, 28, 28});
    for (std::size_t i = 0; i < samples * kPixels; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(i / kPixels + i % kPixels));
    }
    return bytes;
  }
  static Bytes label_bytes(std::uint32_t samples) {
    Bytes bytes = idx_header(8, {samples});
    for (std::uint32_t i = 0; i < samples; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(9 - i));
    }
    return bytes;
  }
  fs::path images(const std::string& split) const { return directory_ / (split + "-images-idx3-ubyte.gz"); }
  fs::path labels(const std::string& split) const { return directory_ / (split + "-labels-idx1-ubyte.gz"); }

  DatasetSplits open() const { return open_dataset(options(kShape, 10)); }
  DatasetOptions options(const Dims& dims, std::int64_t classes) const {
    return {.text = "fashion-mnist:" + directory_.string(), .sample_dims = dims, .classes = classes};
  }

  // The text of the DataError that opening throws.
  std::string problem() const {
    return testing::problem<DataError>([this] { open(); });
  }
};

TEST_F(FashionMnistTest, ReadsBothSplits) {
  const DatasetSplits splits = open();
  ASSERT_NE(splits.training, nullptr);
  ASSERT_NE(splits.test, nullptr);
  EXPECT_EQ(splits.training->size(), 3U);
  EXPECT_EQ(splits.test->size(), 2U);
  EXPECT_EQ(splits.training->sample_dims(), kShape);
  EXPECT_EQ(splits.training->classes(), 10);

  EXPECT_EQ(splits.training->target_dims(), Dims{});

  const Sample sample = read_sample(*splits.training, 2);
  EXPECT_THAT(sample.targets, ElementsAre(7));
  for (std::size_t j = 0; j < kPixels; ++j) {
    EXPECT_NEAR(sample.image[j], (static_cast<double>((2 + j) % 256) / 255 - 0.2860) / 0.3530, 1e-6) << j;
  }
}

TEST_F(FashionMnistTest, RefusesToReadPastTheEndOrIntoTheWrongRoom) {
  const DatasetSplits splits = open();
  std::vector<float> image(kPixels);
  std::vector<std::int32_t> targets(2);
  const auto read = [&](std::uint64_t index, std::size_t pixels, std::size_t places) {
    splits.training->read({.index = index}, std::span(image).first(pixels), std::span(targets).first(places));
  };
  read(2, kPixels, 1);
  EXPECT_THROW(read(3, kPixels, 1), InvalidArgument);
  EXPECT_THROW(read(0, kPixels - 1, 1), InvalidArgument);
  EXPECT_THROW(read(0, kPixels, 0), InvalidArgument);
  EXPECT_THROW(read(0, kPixels, 2), InvalidArgument);
}

TEST_F(FashionMnistTest, RefusesAnotherShapeNamingBoth) {
  for (const DatasetOptions& wrong : {options({1, 28, 28}, 11), options({3, 28, 28}, 10),
                                      options({1, 32, 32}, 10), options({28, 28}, 10), options({}, 10)}) {
    EXPECT_THAT(testing::problem<InvalidArgument>([&] { open_dataset(wrong); }),
                AllOf(HasSubstr("1x28x28 in 10"),
                      HasSubstr(to_string(wrong.sample_dims) + " in " + std::to_string(wrong.classes))));
  }
}

TEST_F(FashionMnistTest, HasNoLabelMaps) {
  DatasetOptions maps = options(kShape, 10);
  maps.target_dims = {28, 28};
  EXPECT_THAT(testing::problem<InvalidArgument>([&] { open_dataset(maps); }),
              HasSubstr("one class per sample, the network needs a label map of 28x28"));
}

TEST_F(FashionMnistTest, AMissingDirectoryNamesTheDebianPackage) {
  fs::remove_all(directory_);
  EXPECT_THAT(problem(), AllOf(HasSubstr(directory_.string()), HasSubstr("dataset-fashion-mnist")));
  write_file(directory_, {1});
  EXPECT_THAT(problem(), HasSubstr("something else"));
}

TEST_F(FashionMnistTest, AMissingFileIsNamed) {
  for (const std::string split : {"train", "t10k"}) {
    for (const fs::path& path : {images(split), labels(split)}) {
      const Bytes sound = read_file(path);
      fs::remove(path);
      EXPECT_THAT(problem(), AllOf(HasSubstr(path.string()), HasSubstr("No such file"))) << path;
      write_file(path, sound);
    }
  }
  open();
}

TEST_F(FashionMnistTest, ADirectoryInPlaceOfAFileIsAnError) {
  fs::remove(images("train"));
  fs::create_directory(images("train"));
  EXPECT_THAT(problem(), AllOf(HasSubstr(images("train").string()), HasSubstr("directory")));
}

// Every proper prefix of a compressed file is truncated, though zlib's own file functions accept some as
// complete.
TEST_F(FashionMnistTest, EveryTruncationIsFound) {
  const Bytes sound = read_file(images("train"));
  for (std::size_t size = 0; size < sound.size(); ++size) {
    write_file(images("train"), prefix(sound, size));
    EXPECT_THAT(problem(), AllOf(HasSubstr(images("train").string()), HasSubstr("truncated"))) << size;
  }
}

// Some damage changes nothing: the same bytes may also occur at another distance, and the last bits are
// padding.
TEST_F(FashionMnistTest, DamagedCompressedDataIsFoundOrHarmless) {
  const Bytes sound = read_file(images("train"));
  const std::vector<Sample> samples = read_all(*open().training);
  constexpr std::size_t kGzipHeader = 10;
  std::size_t found = 0;
  for (std::size_t at = kGzipHeader; at < sound.size(); ++at) {
    Bytes damaged = sound;
    damaged[at] ^= 0x10;
    write_file(images("train"), damaged);
    try {
      EXPECT_EQ(read_all(*open().training), samples) << "byte " << at << " flipped";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(images("train").string())) << "byte " << at << " flipped";
      ++found;
    }
  }
  EXPECT_GT(found, (sound.size() - kGzipHeader) * 9 / 10);
}

TEST_F(FashionMnistTest, GarbageAfterTheCompressedDataIsFound) {
  Bytes bytes = read_file(labels("t10k"));
  bytes.push_back(0);
  write_file(labels("t10k"), bytes);
  EXPECT_THAT(problem(), AllOf(HasSubstr(labels("t10k").string()), HasSubstr("found more bytes")));
}

TEST_F(FashionMnistTest, FilesThatAreNotCompressedAreRefused) {
  write_file(images("train"), image_bytes(3));
  EXPECT_THAT(problem(), AllOf(HasSubstr(images("train").string()), HasSubstr("damaged gzip data")));
}

struct Damage {
  const char* name;
  std::function<Bytes(const Bytes&)> images;  // damages the decompressed training images
  std::function<Bytes(const Bytes&)> labels;
  std::vector<const char*> says;
};

Bytes as_it_is(const Bytes& bytes) {
  return bytes;
}

Bytes with(Bytes bytes, std::size_t at, std::uint8_t value) {
  bytes.at(at) = value;
  return bytes;
}

Bytes shorter(Bytes bytes, std::size_t by) {
  bytes.resize(bytes.size() - by);
  return bytes;
}

Bytes longer(const Bytes& bytes) {
  Bytes result = bytes;
  result.push_back(0);
  return result;
}

TEST_F(FashionMnistTest, DamagedContentsAreFound) {
  const std::vector<Damage> damages{
      {"type of elements",
       [](const Bytes& b) { return with(b, 2, 9); },
       as_it_is,
       {"0x00000803", "0x00000903"}},
      {"labels as images",
       [](const Bytes&) { return label_bytes(30); },
       as_it_is,
       {"0x00000803", "0x00000801"}},
      {"images as labels",
       as_it_is,
       [](const Bytes&) { return image_bytes(1); },
       {"0x00000801", "0x00000803"}},
      {"empty", [](const Bytes&) { return Bytes(); }, as_it_is, {"header of 16 bytes", "found 0 bytes"}},
      {"half a header",
       [](const Bytes& b) { return prefix(b, 15); },
       as_it_is,
       {"header of 16 bytes", "found 15 bytes"}},
      {"one byte too few",
       [](const Bytes& b) { return shorter(b, 1); },
       as_it_is,
       {"3x28x28", "expected 2352", "found 2351"}},
      {"one byte too many", longer, as_it_is, {"expected 2352", "found 2353"}},
      {"one label too many", as_it_is, longer, {"expected 3", "found 4"}},
      {"one label too few",
       as_it_is,
       [](const Bytes& b) { return with(shorter(b, 1), 7, 2); },
       {"expected 3 labels", "found 2"}},
      {"no samples", [](const Bytes& b) { return with(b, 7, 0); }, as_it_is, {"found 0 in dimension 0"}},
      {"other images",
       [](const Bytes& b) { return with(with(b, 11, 14), 15, 56); },
       as_it_is,
       {"28x28", "14x56"}},
      {"sizes without end",
       [](const Bytes&) {
         return idx_header(8, {0xffffffff, 0xffffffff, 0xffffffff});
       },
       as_it_is,
       {"overflows 64 bits"}},
      {"a label of 10",
       as_it_is,
       [](const Bytes& b) { return with(b, 9, 10); },
       {"0 to 9", "found 10 at sample 1"}},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    write_gzip(images("train"), damage.images(image_bytes(3)));
    write_gzip(labels("train"), damage.labels(label_bytes(3)));
    const std::string text = problem();
    EXPECT_THAT(text, HasSubstr("-ubyte.gz'"));
    for (const char* const expected : damage.says) {
      EXPECT_THAT(text, HasSubstr(expected));
    }
  }
}

// Regression: the reader decompressed all data, a thousand times the file's size, before it read the header.
TEST_F(FashionMnistTest, NoMoreIsDecompressedThanTheHeaderSays) {
  Bytes bytes = label_bytes(3);
  bytes.resize(std::size_t{64} << 20);
  write_gzip(labels("train"), bytes);
  const std::string text = problem();
  const std::string found = "found at least ";
  ASSERT_THAT(text, HasSubstr("expected 3 elements, " + found));
  EXPECT_LT(std::stoull(text.substr(text.find(found) + found.size())), std::uint64_t{1} << 20);
}

// Regression: opening the pipe waited for a writer.
TEST_F(FashionMnistTest, PipesAreRefused) {
  fs::remove(labels("train"));
  ASSERT_EQ(::mkfifo(labels("train").c_str(), 0600), 0);
  EXPECT_THAT(problem(), AllOf(HasSubstr(labels("train").string()), HasSubstr("expected a file")));
}

TEST(FashionMnist, IsWhereDebianPutsIt) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  }
  const DatasetSplits splits = open_dataset({.text = "fashion-mnist", .sample_dims = kShape, .classes = 10});
  EXPECT_EQ(splits.training->size(), 60'000U);
  EXPECT_EQ(splits.test->size(), 10'000U);
  // The samples are normalised with the split's own mean and standard deviation.
  std::vector<int> labels(10);
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < splits.training->size(); ++i) {
    const Sample sample = read_sample(*splits.training, i);
    ++labels.at(static_cast<std::size_t>(sample.targets[0]));
    for (const float pixel : sample.image) {
      sum += pixel;
      squares += static_cast<double>(pixel) * pixel;
    }
  }
  const double count = 60'000.0 * kPixels;
  EXPECT_NEAR(sum / count, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / count), 1, 1e-3);
  EXPECT_THAT(labels, Each(6'000));
  // Every version must read the same samples, because published hashes of weights depend on them.
  EXPECT_EQ(testing::sha256_of_samples(*splits.training, splits.training->size()),
            "5e1f295981a01660721bff1ee863632443f996a5cadff6532e5ca108b56c087c");
  EXPECT_EQ(testing::sha256_of_samples(*splits.test, splits.test->size()),
            "f6c452eb53b6aba609844ae3cc36738bab6a55c33db8006c4d52a5fc6f465889");
}

}  // namespace
}  // namespace vdnn::fashion_mnist_test
