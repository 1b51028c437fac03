#include "src/data/fashion_mnist.h"

#include <string>

#include "src/data/data_file.h"
#include "src/data/dataset_checks.h"
#include "src/data/idx_file.h"
#include "src/data/pixel_normalisation.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDebianDirectory = "/usr/share/datasets/fashion-mnist";
constexpr std::int64_t kClasses = 10;
constexpr ChannelStatistics kStatistics{.mean = 0.2860F, .deviation = 0.3530F};

Dims image_dims() {
  return {1, 28, 28};
}

class FashionMnist : public Dataset {
 public:
  FashionMnist(const fs::path& images_path, const fs::path& labels_path)
      : dims_(image_dims()), images_(read_idx_file(images_path, 3)), labels_(read_idx_file(labels_path, 1)) {
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
  }

  std::uint64_t size() const override { return labels_.elements().size(); }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return kClasses; }

  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    check_read(*this, key, image, targets);
    const auto pixels = images_.elements().subspan(key.index * image.size(), image.size());
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      image[i] = normalised_[pixels[i]];
    }
    targets[0] = labels_.elements()[key.index];
  }

 private:
  void check_labels(const fs::path& path) const {
    const auto labels = labels_.elements();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] >= kClasses) {
        throw DataError("'" + path.string() + "': expected labels from 0 to 9, found " +
                        std::to_string(labels[i]) + " at sample " + std::to_string(i));
      }
    }
  }

  Dims dims_;
  Dims target_dims_;
  IdxFile images_;
  IdxFile labels_;
  PixelTable normalised_ = pixel_table(kStatistics);
};

}  // namespace

DatasetSplits open_fashion_mnist(const fs::path& directory, const DatasetOptions& options) {
  require_one_class_a_sample("fashion-mnist", options);
  require_samples("fashion-mnist", image_dims(), kClasses, options);
  const fs::path place = directory.empty() ? kDebianDirectory : directory;
  require_directory(place, "the four files of Fashion-MNIST",
                    std::string("; Debian's package dataset-fashion-mnist has them in '") + kDebianDirectory +
                        "', and fashion-mnist:DIR names another place");
  return {.training = std::make_unique<FashionMnist>(place / "train-images-idx3-ubyte.gz",
                                                     place / "train-labels-idx1-ubyte.gz"),
          .test = std::make_unique<FashionMnist>(place / "t10k-images-idx3-ubyte.gz",
                                                 place / "t10k-labels-idx1-ubyte.gz")};
}

}  // namespace vdnn
