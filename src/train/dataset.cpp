#include "vdnn/dataset.h"

#include <array>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "src/base/random.h"
#include "src/train/idx_file.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

void check_read(const Dataset& data, std::uint64_t index, std::uint64_t elements, std::span<float> image) {
  if (index >= data.size()) {
    throw InvalidArgument("sample " + std::to_string(index) + " of a data set of " +
                          std::to_string(data.size()));
  }
  if (image.size() != elements) {
    throw InvalidArgument("a sample has " + std::to_string(elements) + " elements, room is for " +
                          std::to_string(image.size()));
  }
}

// --- Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017) -----------------------------------------------------------

constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";
constexpr std::int64_t kFashionMnistClasses = 10;
constexpr float kFashionMnistMean = 0.2860F;       // of the training split, in units of the brightest pixel
constexpr float kFashionMnistDeviation = 0.3530F;  // likewise

Dims fashion_mnist_dims() {
  return {1, 28, 28};
}

class FashionMnist : public Dataset {
 public:
  FashionMnist(const fs::path& images_path, const fs::path& labels_path)
      : dims_(fashion_mnist_dims()),
        elements_(element_count(dims_)),
        images_(read_idx_file(images_path, 3)),
        labels_(read_idx_file(labels_path, 1)) {
    if (images_.dims[1] != dims_[1] || images_.dims[2] != dims_[2]) {
      throw DataError("'" + images_path.string() + "': expected images of 28x28, found " +
                      std::to_string(images_.dims[1]) + "x" + std::to_string(images_.dims[2]));
    }
    if (images_.dims[0] != labels_.dims[0]) {
      throw DataError("'" + labels_path.string() + "': expected " + std::to_string(images_.dims[0]) +
                      " labels, one for each image of '" + images_path.string() + "', found " +
                      std::to_string(labels_.dims[0]));
    }
    check_labels(labels_path);
    for (std::size_t value = 0; value < normalised_.size(); ++value) {
      normalised_[value] = (static_cast<float>(value) / 255.0F - kFashionMnistMean) / kFashionMnistDeviation;
    }
  }

  std::uint64_t size() const override { return labels_.elements().size(); }
  const Dims& sample_dims() const override { return dims_; }
  std::int64_t classes() const override { return kFashionMnistClasses; }

  void read(std::uint64_t index, std::span<float> image, std::int32_t& target) const override {
    check_read(*this, index, elements_, image);
    const auto pixels = images_.elements().subspan(index * elements_, elements_);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      image[i] = normalised_[pixels[i]];
    }
    target = labels_.elements()[index];
  }

 private:
  void check_labels(const fs::path& path) const {
    const auto labels = labels_.elements();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] >= kFashionMnistClasses) {
        throw DataError("'" + path.string() + "': expected labels from 0 to 9, found " +
                        std::to_string(labels[i]) + " at sample " + std::to_string(i));
      }
    }
  }

  Dims dims_;
  std::uint64_t elements_;
  IdxFile images_;
  IdxFile labels_;
  std::array<float, 256> normalised_{};  // by the value of a pixel
};

// --- Synthetic ---------------------------------------------------------------------------------------------

constexpr std::uint64_t kSyntheticSamples = 4096;
// A class is a pattern of this many cells along each dimension of space: coarse, so that pooling and
// convolutions of any size keep it.
constexpr std::int64_t kPatternCells = 4;

// Each class has a fixed pattern per channel; a sample is its class's pattern under noise of the same range.
// Nothing is stored.
class Synthetic : public Dataset {
 public:
  Synthetic(Dims dims, std::int64_t classes, std::uint64_t seed)
      : dims_(std::move(dims)), elements_(element_count(dims_)), classes_(classes), seed_(seed) {}

  std::uint64_t size() const override { return kSyntheticSamples; }
  const Dims& sample_dims() const override { return dims_; }
  std::int64_t classes() const override { return classes_; }

  void read(std::uint64_t index, std::span<float> image, std::int32_t& target) const override {
    check_read(*this, index, elements_, image);
    target = static_cast<std::int32_t>(index % static_cast<std::uint64_t>(classes_));
    const std::uint64_t pattern_seed = mix_seed(mix_seed(seed_, 0), static_cast<std::uint64_t>(target));
    SplitMix64 noise(mix_seed(mix_seed(seed_, 1), index));
    const auto channels = static_cast<std::uint64_t>(dims_[0]);
    for (std::uint64_t i = 0; i < elements_;) {
      SplitMix64 pattern(mix_seed(pattern_seed, cell(i / channels)));
      for (std::uint64_t c = 0; c < channels; ++c, ++i) {
        image[i] = pattern.symmetric() + noise.symmetric();
      }
    }
  }

 private:
  // The cell of the pattern that a position (row-major in space) lies in.
  std::uint64_t cell(std::uint64_t position) const {
    std::uint64_t result = 0;
    for (std::size_t i = dims_.size() - 1; i > 0; --i) {
      const auto extent = static_cast<std::uint64_t>(dims_[i]);
      result = result * kPatternCells + position % extent * kPatternCells / extent;
      position /= extent;
    }
    return result;
  }

  Dims dims_;
  std::uint64_t elements_;
  std::int64_t classes_;
  std::uint64_t seed_;
};

// --- by name -----------------------------------------------------------------------------------------------

DatasetSplits open_fashion_mnist(const fs::path& directory, const Dims& dims, std::int64_t classes) {
  if (dims != fashion_mnist_dims() || classes != kFashionMnistClasses) {
    throw InvalidArgument("fashion-mnist has samples of " + to_string(fashion_mnist_dims()) + " in " +
                          std::to_string(kFashionMnistClasses) + " classes, the network expects " +
                          to_string(dims) + " in " + std::to_string(classes));
  }
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw DataError("'" + directory.string() +
                    "': expected a directory with the four files of Fashion-MNIST, found " +
                    (fs::exists(directory, error) ? "something else" : "nothing") +
                    "; Debian's package dataset-fashion-mnist has them in '" + kFashionMnistDirectory +
                    "', and fashion-mnist:DIR names another place");
  }
  return {.training = std::make_unique<FashionMnist>(directory / "train-images-idx3-ubyte.gz",
                                                     directory / "train-labels-idx1-ubyte.gz"),
          .test = std::make_unique<FashionMnist>(directory / "t10k-images-idx3-ubyte.gz",
                                                 directory / "t10k-labels-idx1-ubyte.gz")};
}

DatasetSplits open_synthetic(const Dims& dims, std::int64_t classes, std::uint64_t seed) {
  if (dims.empty()) {
    throw InvalidArgument("synthetic samples need a shape");
  }
  if (classes < 1 || classes > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument("synthetic samples in " + std::to_string(classes) +
                          " classes: expected at least 1 and less than 2^31");
  }
  return {.training = std::make_unique<Synthetic>(dims, classes, seed), .test = nullptr};
}

}  // namespace

DatasetSplits open_dataset(const std::string& text, const Dims& sample_dims, std::int64_t classes,
                           std::uint64_t seed) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string directory = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (colon != std::string::npos && directory.empty()) {
    throw InvalidArgument("'" + text + "': expected a directory after the colon");
  }
  if (name == "fashion-mnist") {
    return open_fashion_mnist(directory.empty() ? kFashionMnistDirectory : directory, sample_dims, classes);
  }
  if (text == "synthetic") {
    return open_synthetic(sample_dims, classes, seed);
  }
  if (name == "cifar10" || name == "images") {
    throw InvalidArgument("'" + text + "': this version does not have " + name +
                          ":DIR; it has fashion-mnist[:DIR] and synthetic");
  }
  throw InvalidArgument("'" + text +
                        "' is not a data set: this version has fashion-mnist[:DIR] and synthetic");
}

}  // namespace vdnn
