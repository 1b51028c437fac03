#include "src/data/augmentation.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "src/base/random.h"
#include "vdnn/option_error.h"

namespace vdnn {

namespace {

// Mixed into the seed. Differs from the keys of synthetic samples (0 and 1) and of the order of batches (the
// epoch).
constexpr std::uint64_t kSeedKey = 0x6175676d656e74;  // "augment" in ASCII

struct View {
  std::int64_t down = 0;  // rows from the image's origin to the crop's; negative: into the padding
  std::int64_t right = 0;
  bool mirrored = false;
};

// Crops and mirrors an image in place. The image is stored row by row, with `channels` values per pixel.
template <typename T>
class Grid {
 public:
  Grid(std::span<T> values, std::int64_t height, std::int64_t width, std::int64_t channels)
      : values_(values), height_(height), width_(width), channels_(channels) {}

  // Replaces the image by the view. Fills the part of the view outside of the image with `padding`.
  void show(const View& view, T padding) {
    // In this order, each row is moved before another row overwrites it.
    for (std::int64_t i = 0; i < height_; ++i) {
      move_row(view.down < 0 ? height_ - 1 - i : i, view, padding);
    }
    if (view.mirrored) {
      mirror();
    }
  }

 private:
  T* pixel(std::int64_t y, std::int64_t x) { return values_.data() + (y * width_ + x) * channels_; }

  void move_row(std::int64_t y, const View& view, T padding) {
    const std::int64_t from = y + view.down;
    if (from < 0 || from >= height_) {
      std::fill(pixel(y, 0), pixel(y, width_), padding);
      return;
    }
    const std::int64_t begin = std::max<std::int64_t>(0, -view.right);
    const std::int64_t end = std::min(width_, width_ - view.right);
    // Within a row, source and destination may overlap.
    std::memmove(pixel(y, begin), pixel(from, begin + view.right),
                 static_cast<std::size_t>((end - begin) * channels_) * sizeof(T));
    std::fill(pixel(y, 0), pixel(y, begin), padding);
    std::fill(pixel(y, end), pixel(y, width_), padding);
  }

  void mirror() {
    for (std::int64_t y = 0; y < height_; ++y) {
      for (std::int64_t x = 0; x < width_ / 2; ++x) {
        std::swap_ranges(pixel(y, x), pixel(y, x + 1), pixel(y, width_ - 1 - x));
      }
    }
  }

  std::span<T> values_;
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t channels_;
};

class Augmented : public Dataset {
 public:
  Augmented(std::unique_ptr<Dataset> data, const AugmentationOptions& options)
      : data_(std::move(data)), options_(options) {
    const Dims& dims = data_->sample_dims();
    if (dims.size() != 3) {
      throw InvalidArgument(
          "augmentation is for images in two dimensions (CxHxW); the samples have the shape " +
          to_string(dims));
    }
    const Dims& map = data_->target_dims();
    if (!map.empty() && map != Dims(dims.begin() + 1, dims.end())) {
      throw InvalidArgument("augmentation moves label maps with their images: expected maps of " +
                            to_string(Dims(dims.begin() + 1, dims.end())) + ", found " + to_string(map));
    }
    if (options.crop_padding < 0 || options.crop_padding >= std::min(dims[1], dims[2])) {
      throw InvalidOption(
          {{.option = "crop_padding", .value = std::to_string(options.crop_padding)}},
          "expected at least 0 and less than height and width of samples of " + to_string(dims));
    }
  }

  std::uint64_t size() const override { return data_->size(); }
  const Dims& sample_dims() const override { return data_->sample_dims(); }
  const Dims& target_dims() const override { return data_->target_dims(); }
  std::int64_t classes() const override { return data_->classes(); }

  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    data_->read(key, image, targets);
    const Dims& dims = data_->sample_dims();
    const View view = view_of(key);
    Grid(image, dims[1], dims[2], dims[0]).show(view, 0.0F);
    if (!data_->target_dims().empty()) {
      Grid(targets, dims[1], dims[2], 1).show(view, -1);
    }
  }

 private:
  View view_of(const SampleKey& key) const {
    SplitMix64 random(mix_seed(mix_seed(mix_seed(options_.seed, kSeedKey), key.epoch), key.index));
    const auto offset = [&] {
      const auto origins = static_cast<std::uint64_t>(2 * options_.crop_padding + 1);
      return static_cast<std::int64_t>(random.below(origins)) - options_.crop_padding;
    };
    const std::int64_t down = offset();
    const std::int64_t right = offset();
    return {.down = down, .right = right, .mirrored = random.below(2) == 1};
  }

  std::unique_ptr<Dataset> data_;
  AugmentationOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> data, const AugmentationOptions& options) {
  return std::make_unique<Augmented>(std::move(data), options);
}

}  // namespace vdnn
