#include "fuzz/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vdnn::fuzz {

Sample read_sample(const Dataset& data, std::uint64_t index) {
  // The reader must overwrite all of these values.
  Sample sample{
      .image = std::vector<float>(element_count(data.sample_dims()), std::numeric_limits<float>::quiet_NaN()),
      .target = -1};
  data.read({.index = index}, sample.image, std::span(&sample.target, 1));
  require(std::ranges::all_of(sample.image, [](float value) { return std::isfinite(value); }),
          "a sample is finite everywhere");
  require(sample.target >= 0 && sample.target < data.classes(),
          "the target of a sample is one of the classes");
  return sample;
}

}  // namespace vdnn::fuzz
