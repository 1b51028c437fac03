#include "src/data/cifar10.h"

#include <array>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "src/data/data_file.h"
#include "src/data/dataset_checks.h"
#include "src/data/pixel_normalisation.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kClasses = 10;
constexpr std::size_t kChannels = 3;
constexpr std::size_t kPlanePixels = std::size_t{32} * 32;
constexpr std::size_t kRecordBytes = 1 + kChannels * kPlanePixels;
// Mean and standard deviation of each channel of the training split.
constexpr std::array<ChannelStatistics, kChannels> kStatistics{{{.mean = 0.4914F, .deviation = 0.2470F},
                                                                {.mean = 0.4822F, .deviation = 0.2435F},
                                                                {.mean = 0.4465F, .deviation = 0.2616F}}};

Dims image_dims() {
  return {kChannels, 32, 32};
}

std::vector<std::uint8_t> read_records(const fs::path& path) {
  std::vector<std::uint8_t> records = read_data_file(path);
  if (records.empty() || records.size() % kRecordBytes != 0) {
    reject_file(path, "expected a positive multiple of " + std::to_string(kRecordBytes) +
                          " bytes (a label and 3x32x32 pixels), found " + std::to_string(records.size()));
  }
  for (std::size_t at = 0; at < records.size(); at += kRecordBytes) {
    if (records[at] >= kClasses) {
      reject_file(path, "expected labels from 0 to 9, found " + std::to_string(records[at]) + " in record " +
                            std::to_string(at / kRecordBytes));
    }
  }
  return records;
}

class Cifar10 : public Dataset {
 public:
  explicit Cifar10(const std::vector<fs::path>& paths) : dims_(image_dims()) {
    for (const fs::path& path : paths) {
      const std::vector<std::uint8_t> records = read_records(path);
      records_.insert(records_.end(), records.begin(), records.end());
    }
    for (std::size_t c = 0; c < kChannels; ++c) {
      normalised_[c] = pixel_table(kStatistics[c]);
    }
  }

  std::uint64_t size() const override { return records_.size() / kRecordBytes; }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return kClasses; }

  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    check_read(*this, key, image, targets);
    const auto record = std::span(records_).subspan(key.index * kRecordBytes, kRecordBytes);
    targets[0] = record[0];
    for (std::size_t c = 0; c < kChannels; ++c) {
      const auto plane = record.subspan(1 + c * kPlanePixels, kPlanePixels);
      for (std::size_t i = 0; i < kPlanePixels; ++i) {
        image[i * kChannels + c] = normalised_[c][plane[i]];
      }
    }
  }

 private:
  Dims dims_;
  Dims target_dims_;
  std::vector<std::uint8_t> records_;
  std::array<PixelTable, kChannels> normalised_{};
};

}  // namespace

DatasetSplits open_cifar10(const fs::path& directory, const DatasetOptions& options) {
  require_one_class_a_sample("cifar10", options);
  require_samples("cifar10", image_dims(), kClasses, options);
  require_directory(
      directory, "the binary version of CIFAR-10 (data_batch_1.bin to data_batch_5.bin and test_batch.bin)");
  const fs::path unpacked = directory / "cifar-10-batches-bin";
  std::error_code error;
  const fs::path place = fs::is_directory(unpacked, error) ? unpacked : directory;
  std::vector<fs::path> training;
  for (int batch = 1; batch <= 5; ++batch) {
    training.push_back(place / ("data_batch_" + std::to_string(batch) + ".bin"));
  }
  return {.training = std::make_unique<Cifar10>(training),
          .test = std::make_unique<Cifar10>(std::vector{place / "test_batch.bin"})};
}

}  // namespace vdnn
