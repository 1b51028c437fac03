#include "src/data/synthetic.h"

#include <limits>
#include <string>
#include <utility>

#include "src/base/random.h"
#include "src/data/dataset_checks.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kSamples = 4096;
// A class's pattern has this many cells along each spatial dimension. The pattern is coarse, so that pooling
// and convolutions of any size preserve it.
constexpr std::int64_t kPatternCells = 4;

class Synthetic : public Dataset {
 public:
  explicit Synthetic(const DatasetOptions& options)
      : dims_(options.sample_dims),
        target_dims_(options.target_dims),
        elements_(element_count(dims_)),
        classes_(static_cast<std::uint64_t>(options.classes)),
        seed_(options.seed) {}

  std::uint64_t size() const override { return kSamples; }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return static_cast<std::int64_t>(classes_); }

  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    check_read(*this, key, image, targets);
    const std::uint64_t sample_class = key.index % classes_;
    const std::uint64_t pattern_seed = mix_seed(mix_seed(seed_, 0), sample_class);
    if (target_dims_.empty()) {
      targets[0] = static_cast<std::int32_t>(sample_class);
    } else {
      for (std::uint64_t position = 0; position < targets.size(); ++position) {
        targets[position] = label(mix_seed(pattern_seed, cell(position)));
      }
    }
    SplitMix64 noise(mix_seed(mix_seed(seed_, 1), key.index));
    const auto channels = static_cast<std::uint64_t>(dims_[0]);
    for (std::uint64_t i = 0; i < elements_;) {
      SplitMix64 pattern(mix_seed(pattern_seed, cell(i / channels)));
      for (std::uint64_t c = 0; c < channels; ++c, ++i) {
        image[i] = pattern.symmetric() + noise.symmetric();
      }
    }
  }

 private:
  // Divides the range of 24-bit numbers into `classes_` equal parts, and returns the part that contains the
  // highest 24 bits of the cell's first random number. The pattern's first channel in the cell is made from
  // the same bits (SplitMix64::symmetric()).
  std::int32_t label(std::uint64_t cell_seed) const {
    return static_cast<std::int32_t>((SplitMix64(cell_seed).next() >> 40) * classes_ >> 24);
  }

  // The cell of the pattern that contains `position`, a row-major index into the spatial dimensions.
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
  Dims target_dims_;
  std::uint64_t elements_;
  std::uint64_t classes_;
  std::uint64_t seed_;
};

}  // namespace

DatasetSplits open_synthetic(const DatasetOptions& options) {
  if (options.sample_dims.empty()) {
    throw InvalidArgument("synthetic samples need a shape");
  }
  const Dims space(options.sample_dims.begin() + 1, options.sample_dims.end());
  if (!options.target_dims.empty() && options.target_dims != space) {
    throw InvalidArgument("synthetic samples of " + to_string(options.sample_dims) +
                          " have one class, or a label map of " + to_string(space) +
                          "; the network needs a label map of " + to_string(options.target_dims));
  }
  if (options.classes < 1 || options.classes > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument("synthetic samples in " + std::to_string(options.classes) +
                          " classes: expected at least 1 and less than 2^31");
  }
  return {.training = std::make_unique<Synthetic>(options), .test = nullptr};
}

}  // namespace vdnn
